"""Starts that failed over one bad entry, and resets to empty that made it worse."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path
from unittest import mock

import pytest

from checkpointmanager import (
    CheckpointExists,
    CheckpointManager,
    CheckpointNotFound,
    CheckpointUnreadable,
    CheckpointWriteFailed,
    Event,
    EventKind,
    Reason,
)
from checkpointmanager.testing import damage

from .gpus import DRIVER, POOL, GpuDriver, node, pod
from .sandboxes import Sandbox, naive_load, opened, quarantined, reason_for

PODS = {number: pod(f"pod-{number}", **{f"gpu_{number}": f"uid-{number}"}) for number in range(3)}


@pytest.fixture
def driver() -> GpuDriver:
    return GpuDriver({f"uid-{number}": f"gpu-{number}" for number in PODS})


@pytest.fixture
def claim_file(directory: Path, driver: GpuDriver) -> Path:
    """The file of uid-1, one of three prepared claims, each written twice: for the intent and for the result."""
    with node(directory, driver) as agent:
        for each in PODS.values():
            agent.prepare_resources(each)
    return directory / "uid-1.json"


def test_nvidia_1100_a_bad_checksum_is_an_event_and_a_degraded_start(
    directory: Path, driver: GpuDriver, claim_file: Path, events: list[Event]
) -> None:
    """A bad checksum ended the plugin before its health server was up, so nothing was reported."""
    damage.ruin(directory, "uid-1")
    bad = claim_file.read_bytes()

    with node(directory, driver, on_event=events.append) as agent:
        report = agent.cache.report()

        assert (report.claims, report.degraded) == (3, True)
        assert "uid-1.json" in report.unknown["uid-1"]
        assert "checkpoint-verify diagnose" in report.unknown["uid-1"], "what to do next"
        assert {(event.kind, event.key, event.reason) for event in events} == {
            (EventKind.DAMAGE, "uid-1", Reason.CHECKSUM_MISMATCH)
        }
        for healthy in (PODS[0], PODS[2]):
            agent.prepare_resources(healthy)
    assert claim_file.read_bytes() == bad


def test_nvidia_1259_a_damaged_claim_is_not_reset_to_empty(
    directory: Path, driver: GpuDriver, claim_file: Path
) -> None:
    """The proposed cure was to start from empty, until a reviewer saw that this leaks every prepared device."""
    damage.ruin(directory, "uid-1")
    bad = claim_file.read_bytes()

    with node(directory, driver) as agent:
        assert "uid-1" in agent.cache
        assert [claim.uid for claim in agent.cache.of_pod("pod-1")] == ["uid-1"], "known from the previous generation"
        agent.reconcile(PODS.values(), complete=True)
        assert driver.unprepared == [], "it is still in use"
        agent.reconcile([PODS[0], PODS[2]], complete=True)

        assert driver.set_up == {"gpu-0": "uid-0", "gpu-2": "uid-2"}, "and when it is not, the device comes back"
        assert "uid-1" not in agent.cache
    assert quarantined(directory) == [bad]


def test_dra_example_driver_240_an_unreadable_claim_fails_closed_and_heals(
    directory: Path, driver: GpuDriver, claim_file: Path
) -> None:
    """An unreadable file was a nil dereference; reset to empty it could not heal, as kubelet prepares only once."""
    damage.ruin(directory, "uid-1")
    restarted = GpuDriver(driver.allocations)

    with node(directory, restarted) as agent:
        assert not agent.cache.report().unknown.keys() - {"uid-1"}
        agent.prepare_resources(PODS[1])  # kubelet does call again after a restart of its own, or a reboot

        assert not agent.cache.report().degraded
        assert agent.cache.holders(DRIVER, POOL, "gpu-1") == {"uid-1"}
    with node(directory, restarted) as agent:
        assert not agent.cache.report().degraded, "healed on disk too"


def test_dra_example_driver_249_a_running_claim_can_be_let_go_by_its_uid_alone(
    directory: Path, driver: GpuDriver, claim_file: Path
) -> None:
    """No one prepares a running claim again, so its record must be removable without being read."""
    claim_file.write_bytes(b"")
    (directory / ".previous-uid-1").unlink()

    with node(directory, driver) as agent:
        claim = agent.cache.get("uid-1")
        assert claim is not None
        assert claim.unknown
        agent.unprepare_claim("uid-1")

        assert driver.unprepared == ["uid-1"], "every driver is called, since none is known to be without it"
        assert driver.set_up == {"gpu-0": "uid-0", "gpu-2": "uid-2"}
        assert not agent.cache.report().degraded


def make_empty(path: Path) -> None:
    path.write_bytes(b"")


def make_a_directory(path: Path) -> None:
    path.unlink()
    path.mkdir()


def make_a_dangling_link(path: Path) -> None:
    path.unlink()
    path.symlink_to("nowhere")


def make_it_anothers(path: Path) -> None:
    path.write_bytes((path.parent / "uid-0.json").read_bytes())


@pytest.mark.parametrize("spoil", [make_empty, make_a_directory, make_a_dangling_link, make_it_anothers])
def test_rocm_78_one_bad_entry_costs_one_claim(
    directory: Path, driver: GpuDriver, claim_file: Path, spoil: Callable[[Path], object]
) -> None:
    """One entry that could not be restored failed the start for every GPU of the node."""
    spoil(claim_file)
    with node(directory, driver) as agent:
        assert list(agent.cache.report().unknown) == ["uid-1"]
        for healthy in (PODS[0], PODS[2]):
            agent.prepare_resources(healthy)
            assert agent.get_resources(healthy, "main").cdi_devices


def test_nomad_1367_an_empty_state_file_fails_one_task_not_the_client(directory: Path) -> None:
    """One empty file among the states of many tasks kept the whole client from starting."""
    with opened(directory) as manager, manager.batch() as batch:
        for number in range(50):
            batch.create_checkpoint(f"task-{number}", Sandbox("pod"))
    (directory / "task-7.json").write_bytes(b"")
    with pytest.raises(ValueError):
        naive_load(directory)

    with opened(directory) as manager:
        loaded = manager.load()

    assert len(loaded.checkpoints) == 49
    assert {key: reason_for(problem) for key, problem in loaded.problems.items()} == {"task-7": Reason.EMPTY}


@pytest.mark.parametrize("code", [errno.EIO, errno.EACCES, errno.EMFILE, errno.ESTALE])
def test_tencentdb_agent_memory_770_a_read_error_is_not_a_first_run(real_directory: Path, code: int) -> None:
    """Any error while reading was taken for a first run, and the next save destroyed what had only been unreadable."""
    with CheckpointManager(real_directory) as manager:
        manager.create_checkpoint("memory", {"facts": 1})
        with (
            mock.patch.object(os, "read", side_effect=OSError(code, os.strerror(code))),
            pytest.raises(CheckpointUnreadable) as error,
        ):
            manager.get_checkpoint("memory")
        with pytest.raises(CheckpointNotFound):
            manager.get_checkpoint("never-written")
        assert (error.value.reason, error.value.errno) == (Reason.UNREADABLE, code)
        assert not isinstance(error.value, KeyError), "only what is not there means new"
        assert manager.get_checkpoint("memory").data == {"facts": 1}, "the trouble is over, and so is the error"


def test_tencentdb_agent_memory_770_a_save_keeps_the_damaged_bytes_first(directory: Path) -> None:
    """The damaged file could have been rescued, but the agent wrote its empty state over it."""
    with CheckpointManager(directory) as manager:
        manager.create_checkpoint("memory", {"facts": ["a", "b", "c", "d", "e", "f"]})
    damage.ruin(directory, "memory")
    bad = (directory / "memory.json").read_bytes()

    with CheckpointManager(directory) as manager:
        with pytest.raises(CheckpointExists):
            manager.create_checkpoint("memory", {}, overwrite=False)
        manager.create_checkpoint("memory", {"facts": []})
        assert quarantined(directory) == [bad]


def test_tencentdb_agent_memory_770_bytes_that_cannot_be_kept_are_not_replaced(real_directory: Path) -> None:
    """The same on a disk that has no room for a copy: then even less may be written over the only one."""
    with CheckpointManager(real_directory) as manager:
        manager.create_checkpoint("memory", {"facts": ["a", "b", "c", "d", "e", "f"]})
    damage.ruin(real_directory, "memory")
    bad = (real_directory / "memory.json").read_bytes()

    no_room = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    with CheckpointManager(real_directory) as manager:
        with mock.patch.object(os, "mkdir", side_effect=no_room), pytest.raises(CheckpointWriteFailed) as failure:
            manager.create_checkpoint("memory", {"facts": []})

        assert (failure.value.errno, failure.value.in_doubt) == (errno.ENOSPC, False)
        assert (real_directory / "memory.json").read_bytes() == bad
        with mock.patch.object(os, "mkdir", side_effect=no_room):
            manager.remove_checkpoint("memory")
        assert "memory" not in manager, "removing it must always be possible"
