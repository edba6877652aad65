"""Starts that failed over one bad entry, and resets to empty that made it worse."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from checkpointmanager import (
    Event,
    EventKind,
    Reason,
)
from checkpointmanager.testing import damage

from .gpus import DRIVER, POOL, GpuDriver, node, pod
from .sandboxes import quarantined

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
