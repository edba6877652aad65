"""Programs that met the files of the release before, and called them corrupted."""

from __future__ import annotations

import json
import traceback
import zlib
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from checkpoint_verify.kubelet import Verdict
from checkpointmanager import CheckpointManager, CheckpointTooNew, Schema, SchemaMismatch
from draState import CLAIMS, ClaimInfoCache

from . import kubelets
from .naive import Corrupted, open_struct, seal_struct
from .sandboxes import data_in


@dataclass
class Devices117:
    pods: dict[str, list[str]]


@dataclass
class Devices118:
    pods: dict[str, list[str]]
    numa: dict[str, int] = field(default_factory=dict)


OLD = Schema("Devices", version=1, type=Devices117)
NEW = Schema("Devices", version=2, type=Devices118, readable_by=1)
STATE = {"pod-1": ["gpu-0"]}


def test_kubernetes_86676_a_new_field_is_neither_corruption_nor_lost_on_rollback(directory: Path) -> None:
    """A field more in the struct changed its checksum: kubelet 1.18 panicked over 1.17's file, and the other way."""
    with pytest.raises(Corrupted):
        open_struct(seal_struct(Devices117(STATE)), Devices118)
    with pytest.raises(Corrupted):
        open_struct(seal_struct(Devices118(STATE, {"gpu-0": 1})), Devices117)

    with CheckpointManager(directory, OLD) as old:
        old.create_checkpoint("devices", Devices117(STATE))
    with CheckpointManager(directory, NEW) as new:
        assert new.get_checkpoint("devices").data == Devices118(STATE, {})
        new.create_checkpoint("devices", Devices118(STATE, {"gpu-0": 1}))
    with CheckpointManager(directory, OLD) as old:  # the upgrade is taken back
        old.update_checkpoint("devices", lambda devices: Devices117(devices.pods | {"pod-2": ["gpu-1"]}))
    with CheckpointManager(directory, NEW) as new:
        after = new.get_checkpoint("devices").data
    assert after == Devices118(STATE | {"pod-2": ["gpu-1"]}, {"gpu-0": 1})


def test_kubernetes_86676_what_an_old_program_may_not_read_is_called_newer_not_corrupted(directory: Path) -> None:
    """Rolling back failed as well, with the same word "corrupted" for a file that had nothing wrong with it."""
    unreadable_for_old = Schema("Devices", version=2, type=Devices118)
    with CheckpointManager(directory, unreadable_for_old) as new:
        new.create_checkpoint("devices", Devices118(STATE))
    blob = (directory / "devices.json").read_bytes()

    with CheckpointManager(directory, OLD) as old:
        assert isinstance(old.load().problems["devices"], CheckpointTooNew)
        with pytest.raises(CheckpointTooNew):
            old.create_checkpoint("devices", Devices117({}))

    assert (directory / "devices.json").read_bytes() == blob
    assert not (directory / ".quarantine").exists()


CLAIM: dict[str, Any] = {"ClaimUID": "uid-1", "ClaimName": "gpu", "Namespace": "default", "PodUIDs": {"pod-1": {}}}


@pytest.mark.parametrize(
    ("version", "written"),
    [
        (1, CLAIM | {"DriverName": "gpu.example.com", "CdiDevices": ["gpu=0"]}),
        (2, CLAIM | {"DriverName": "gpu.example.com", "CDIDevices": {"gpu.example.com": ["gpu=0"]}}),
    ],
)
def test_kubernetes_123552_claims_of_every_older_shape_load(
    directory: Path, version: int, written: dict[str, Any]
) -> None:
    """One more API field inside the claim state, and kubelet stayed down until an operator deleted the file."""
    with CheckpointManager(directory, Schema("ClaimInfo", version)) as old:
        old.create_checkpoint("uid-1", written)

    cache = ClaimInfoCache(directory)

    claim = cache.get("uid-1")
    cache.close()
    assert claim is not None
    assert not claim.unknown
    assert claim.state.pod_uids == {"pod-1"}
    assert [device.cdi_device_ids for device in claim.state.driver_states["gpu.example.com"].devices] == [("gpu=0",)]


def test_kubernetes_127653_a_field_of_the_next_release_is_no_damage(directory: Path) -> None:
    """1.30 to 1.31: dra_manager_state "corrupted", kubelet down, and a distribution that deletes state at boot."""
    before = b'{"version":"v1","entries":[{"ClaimUID":"uid-1"}],"checksum":7}'
    refused = kubelets.judged(before, "dra_manager_state")
    assert (refused.loads_in["1.31"], refused.verdict) == (False, Verdict.UNKNOWN), "not loaded, and yet not damaged"
    text = json.loads(kubelets.CLAIMS)["Data"].replace('"ClaimUID"', '"Priority":1,"ClaimUID"')
    since = json.dumps({"Data": text, "Checksum": zlib.crc32(text.encode())}).encode()
    assert kubelets.judged(since, "dra_manager_state").verdict is Verdict.VALID, "kubelet has learned: it hashes text"

    following = Schema("ClaimInfo", version=CLAIMS.version + 1, readable_by=CLAIMS.version)
    with CheckpointManager(directory, following) as next_release:
        next_release.create_checkpoint(
            "uid-1",
            {"claim_uid": "uid-1", "claim_name": "gpu", "namespace": "default", "pod_uids": [], "priority": 1},
        )
    cache = ClaimInfoCache(directory)
    (claim,) = cache
    cache.put(replace(claim, state=replace(claim.state, pod_uids=frozenset({"pod-1"}))))
    cache.close()

    with CheckpointManager(directory, following) as next_release:
        kept = next_release.get_checkpoint("uid-1")
    assert kept.data["priority"] == 1
    assert kept.version == following.version, "the file stays one of the next release"


@dataclass
class Resources:
    cpu: str
    memory: str = "0"


@dataclass
class Restored:
    cpu: str
    memory: object = 0


def test_kubernetes_117589_restarts_without_end_change_nothing(directory: Path) -> None:
    """Restoring added "memory":"0" to the state in memory; stored at the first restart, it was fatal at the second."""
    restored = seal_struct(Restored("1"))  # in memory the zero is a number ...
    with pytest.raises(Corrupted):
        open_struct(restored.replace(b'"memory": 0', b'"memory": "0"'), Restored)  # ... and in the file a text

    path = directory / "pod-1.json"
    with CheckpointManager(directory, Schema("Resources")) as before:
        before.create_checkpoint("pod-1", {"cpu": "1"})
    seen = []
    for _ in range(4):
        with CheckpointManager(directory, Schema("Resources", type=Resources)) as manager:
            assert manager.verify().intact == 1
            manager.create_checkpoint("pod-1", manager.get_checkpoint("pod-1").data)
            seen.append(data_in(path))

    assert seen == ['{"cpu":"1","memory":"0"}}\n'] * 4, "load and store give the same bytes for ever"


@dataclass
class FlatDevices:
    devices: list[str]


@dataclass
class DevicesPerNuma:
    devices: dict[str, list[str]]


def test_kubernetes_102880_a_changed_type_is_reported_and_not_an_empty_state(directory: Path) -> None:
    """1.19 to 1.20 made a list a map; the restore failed with one warning, and pods ran without their devices."""
    flat = {"Data": {"PodDeviceEntries": [{"PodUID": "p", "DeviceIDs": ["gpu-0"]}]}, "Checksum": 1}
    assert kubelets.judged(json.dumps(flat).encode(), "kubelet_internal_checkpoint").verdict is Verdict.UNKNOWN
    with CheckpointManager(directory, Schema("Devices", version=1, type=FlatDevices)) as old:
        old.create_checkpoint("pod-1", FlatDevices(["gpu-0"]))
    blob = (directory / "pod-1.json").read_bytes()

    with CheckpointManager(directory, Schema("Devices", version=2, type=DevicesPerNuma)) as forgetful:
        loaded = forgetful.load()  # its author has forgotten the migration
        assert not loaded.checkpoints
        assert isinstance(loaded.problems["pod-1"], SchemaMismatch)
        assert "$.devices is list, not dict" in str(loaded.problems["pod-1"])
        assert "pod-1" in forgetful, "not new: its devices must not count as free"
    assert (directory / "pod-1.json").read_bytes() == blob

    migrating = Schema(
        "Devices",
        version=2,
        type=DevicesPerNuma,
        migrations={1: lambda data: {"devices": {"-1": data["devices"]}}},
    )
    with CheckpointManager(directory, migrating) as new:
        assert new.get_checkpoint("pod-1").data == DevicesPerNuma({"-1": ["gpu-0"]})


def per_numa(data: dict[str, Any]) -> dict[str, Any]:
    return {"devices": {"-1": data["device_ids"]}}  # the field was never called so


def test_kubernetes_102880_a_migration_that_fails_throws_no_acknowledged_state_away(directory: Path) -> None:
    """The restore failed in the program, not on the disk: a reset or rollback then loses good state."""
    with CheckpointManager(directory, Schema("Devices", version=1, type=FlatDevices)) as old:
        old.create_checkpoint("pod-1", FlatDevices([]))
        old.create_checkpoint("pod-1", FlatDevices(["gpu-0"]))
    blob = (directory / "pod-1.json").read_bytes()

    failing = Schema("Devices", version=2, type=DevicesPerNuma, migrations={1: per_numa})
    with CheckpointManager(directory, failing) as new:
        for attempt in (new.get_checkpoint, new.recover_checkpoint, partial(new.recover_checkpoint, rollback=True)):
            with pytest.raises(SchemaMismatch, match="the migration from version 1 with KeyError") as caught:
                attempt("pod-1")
            assert traceback.extract_tb((caught.value.__cause__ or caught.value).__traceback__)[-1].name == "per_numa"
        assert new.verify().intact == 1, "nothing happened to this file"

    assert (directory / "pod-1.json").read_bytes() == blob
    assert not (directory / ".quarantine").exists()
    with CheckpointManager(directory, Schema("Devices", version=1, type=FlatDevices)) as old:
        assert old.get_checkpoint("pod-1").data == FlatDevices(["gpu-0"])


@dataclass
class Prepared:
    device: str
    status: str = ""


@dataclass
class PreparedWithMore:
    device: str
    status: str = ""
    share: str | None = None
    conditions: list[str] = field(default_factory=list)


@dataclass
class PreparedWithLess:
    device: str


@dataclass
class PreparedWithMoreDemands:
    device: str
    share: str


@dataclass
class PreparedInOtherOrder:
    status: str
    device: str


@pytest.mark.parametrize("upstream", [PreparedWithMore, PreparedWithLess, PreparedInOtherOrder])
def test_nvidia_1080_a_foreign_struct_that_changes_is_no_corruption(directory: Path, upstream: type[Any]) -> None:
    """A struct of another project inside the checkpoint changed, twice, and each upgrade was a CrashLoopBackOff."""
    with pytest.raises(Corrupted):
        open_struct(seal_struct(Prepared("gpu-0", "ready")), upstream)
    with CheckpointManager(directory, Schema("Prepared", type=Prepared)) as old:
        old.create_checkpoint("claim", Prepared("gpu-0", "ready"))

    with CheckpointManager(directory, Schema("Prepared", type=upstream)) as new:  # not even a new version number
        assert not new.load().problems
        new.update_checkpoint("claim", lambda prepared: prepared)
        assert new.get_checkpoint("claim").data.device == "gpu-0"
        assert new.verify().intact == 1


def test_nvidia_1080_a_foreign_struct_that_demands_more_is_a_mismatch_and_its_file_is_whole(directory: Path) -> None:
    """The cure was to delete the checkpoint on each node, and with it what was prepared."""
    with CheckpointManager(directory, Schema("Prepared", type=Prepared)) as old:
        old.create_checkpoint("claim", Prepared("gpu-0", "ready"))
    blob = (directory / "claim.json").read_bytes()

    with CheckpointManager(directory, Schema("Prepared", type=PreparedWithMoreDemands)) as new:
        problem = new.load().problems["claim"]
        assert isinstance(problem, SchemaMismatch)
        assert "$.share is missing, and has no default" in str(problem)
        with pytest.raises(SchemaMismatch):
            new.recover_checkpoint("claim", rollback=True)

    assert (directory / "claim.json").read_bytes() == blob
    with CheckpointManager(directory, Schema("Prepared", type=PreparedWithMore)) as mended:
        assert mended.get_checkpoint("claim").data.device == "gpu-0"
