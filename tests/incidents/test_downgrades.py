"""Older programs on newer files, and programs of several releases on one directory."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field, make_dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from checkpointmanager import (
    CheckpointManager,
    CheckpointTooNew,
    CorruptCheckpoint,
    Schema,
    UnknownFields,
    unknown_fields,
)
from checkpointmanager.format import CHECKSUM_BYTES, checksum_of

from . import kubelets
from .sandboxes import Sandbox, opened

RELEASES = range(1, 5)  # n-3, n-2, n-1, n


@cache
def cpus_of(release: int) -> type[Any]:
    """Each release has one field more than the one before."""
    return make_dataclass("Cpus", [(f"field_{number}", int, field(default=0)) for number in range(1, release + 1)])


def test_kubernetes_139069_four_releases_take_turns_on_one_directory(directory: Path) -> None:
    """A new CPU manager format broke all jobs that mix kubelets n-1, n-2 and n-3; it was merged, reverted, redone."""
    assert kubelets.judged(kubelets.CPUS_V3, "cpu_manager_state").loads_in["1.35"] is False, "the one that was reverted"
    assert all(kubelets.judged(kubelets.CPUS_V4, "cpu_manager_state").loads_in.values()), (
        "it carries the old form along"
    )
    programs = {release: Schema("Cpus", release, type=cpus_of(release), readable_by=1) for release in RELEASES}
    with CheckpointManager(directory, programs[1]) as first:
        first.create_checkpoint("cpus", cpus_of(1)())

    for release in itertools.chain(*itertools.permutations(RELEASES)):
        name = f"field_{release}"
        with CheckpointManager(directory, programs[release]) as manager:
            manager.update_checkpoint("cpus", lambda cpus: replace(cpus, **{name: getattr(cpus, name) + 1}))  # noqa: B023

    with CheckpointManager(directory, programs[4]) as newest:
        assert newest.get_checkpoint("cpus").data == cpus_of(4)(24, 24, 24, 24), "in 96 turns no count was lost"


@dataclass
class OldDevice:
    name: str
    unknown: UnknownFields = unknown_fields()


@dataclass
class OldClaim:
    devices: list[OldDevice] = field(default_factory=list)


def test_nvidia_507_an_older_driver_keeps_what_it_does_not_know(directory: Path) -> None:
    """After a rollback the older driver refused or dropped the fields of the newer one, so there was no way back."""
    devices = [{"name": "gpu-0", "partition": "1g.10gb"}, {"name": "gpu-1", "partition": "2g.20gb"}]
    newer: Schema[Any] = Schema("Claim", version=2, readable_by=1)
    with CheckpointManager(directory, newer) as new:
        new.create_checkpoint("claim", {"devices": devices, "boot": "7f1c"})

    with CheckpointManager(directory, Schema("Claim", version=1, type=OldClaim)) as old:
        old.update_checkpoint("claim", lambda claim: OldClaim([OldDevice("gpu-9"), *reversed(claim.devices)]))

    with CheckpointManager(directory, newer) as new:
        after = new.get_checkpoint("claim")
    assert after.data == {"devices": [{"name": "gpu-9"}, *reversed(devices)], "boot": "7f1c"}
    assert after.version == 2


def test_rocm_88_a_newer_file_is_called_newer_with_both_versions(directory: Path) -> None:
    """The older binary said "corrupted" where it meant "newer", and corrupted files are what people delete."""
    with CheckpointManager(directory, Schema("Claim", version=7)) as new:
        new.create_checkpoint("claim", {"devices": []})
    blob = (directory / "claim.json").read_bytes()

    with CheckpointManager(directory, Schema("Claim", version=5, type=OldClaim)) as old:
        problem = old.load().problems["claim"]
        assert isinstance(problem, CheckpointTooNew)
        assert not isinstance(problem, CorruptCheckpoint)
        for part in ("version 7", "version 5", "not damaged", "claim.json"):
            assert part in str(problem)
        for refused in (
            lambda: old.create_checkpoint("claim", OldClaim()),
            lambda: old.update_checkpoint("claim", lambda claim: claim),
            lambda: old.recover_checkpoint("claim", rollback=True),
        ):
            with pytest.raises(CheckpointTooNew):
                refused()

    assert (directory / "claim.json").read_bytes() == blob, "it waits unharmed for the newer program"


def test_amazon_ecs_agent_1983_a_downgraded_agent_still_gets_rid_of_a_newer_file(directory: Path) -> None:
    """An older agent refused the state of the newer one as a whole, so that there was no way back."""
    with CheckpointManager(directory, Schema("Claim", version=2)) as new:
        new.create_checkpoint("claim-1", {"devices": []})
    with CheckpointManager(directory, Schema("Claim", version=1, type=OldClaim)) as old:
        old.create_checkpoint("claim-2", OldClaim())

        assert list(old.load().checkpoints) == ["claim-2"], "it starts with what it can read"
        old.remove_checkpoint("claim-1")

        assert old.list_checkpoints() == ["claim-2"]


def test_nvidia_1066_the_boot_is_in_the_header_since_the_first_version(directory: Path) -> None:
    """A boot id was added to the checkpoint to see reboots, and older drivers could not read it any more."""
    with opened(directory, boot_id="boot-1") as manager:
        manager.create_checkpoint("claim", Sandbox("pod-1"))
    path = directory / "claim.json"
    body = path.read_bytes()[CHECKSUM_BYTES:].replace(b'"boot":', b'"machine":{"rack":4},"boot":')
    path.write_bytes(checksum_of(body) + body)  # as a later release may stamp it

    with opened(directory, boot_id="boot-2") as manager:
        checkpoint = manager.get_checkpoint("claim")

    assert checkpoint.data == Sandbox("pod-1")
    assert (checkpoint.boot, checkpoint.from_this_boot) == ("boot-1", False)
