"""The health of devices on disk: restarts, reboots, damage, a failing disk, other versions."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from checkpointmanager import CheckpointManager, ManagerClosed, Schema
from checkpointmanager.testing import damage
from draState import DEVICE_HEALTH, DeviceHealth, DeviceHealthStore, DriverHealth

from .health import BOOT, GPU, HEALTHY, NIC, UNHEALTHY, UNKNOWN, HealthNode, device
from .stores import lost_sync, no_space

DATA = Path(__file__).parent.parent / "data" / "draState"


@pytest.fixture
def node(directory: Path) -> Iterator[HealthNode]:
    node = HealthNode(directory)
    yield node
    node.store.close()


# Restarts.


def test_a_restart_changes_nothing_and_is_not_announced(node: HealthNode) -> None:
    node.report(device(message="fine"), device("d1", UNHEALTHY, "burnt", 60))
    node.report(device(), driver=NIC)
    before = node.store.drivers()
    node.time += 29
    del node.changes[:]

    node.restart()

    assert node.store.drivers() == before
    assert (node.message("d0"), node.message("d1")) == ("fine", "burnt")
    assert node.passed(2) == ["d0", "d0"]
    assert (node.health("d0"), node.health("d1")) == (UNKNOWN, UNHEALTHY)


@pytest.mark.parametrize("boot_id", ["boot-b", ""])
def test_after_a_reboot_nothing_is_known(node: HealthNode, boot_id: str) -> None:
    node.report(device(timeout=10_000))
    node.boot_id = boot_id
    node.time += 1  # as if the clock had kept running
    node.restart()
    assert node.store.drivers() == {}
    assert not node.store.problems
    assert node.report(device()) == ["d0"]


def test_a_stamp_of_the_future_counts_for_nothing(node: HealthNode) -> None:
    node.report(device())
    node.time -= 500
    node.restart()
    assert node.health() is UNKNOWN


def test_a_driver_whose_stream_ends_because_the_agent_does_is_still_known_afterwards(node: HealthNode) -> None:
    def stream() -> Iterator[list[DeviceHealth]]:
        yield [device()]
        node.store.close()

    node.store.follow(GPU, stream())
    node.start()

    assert node.health() is HEALTHY


# When something is written.


@pytest.mark.parametrize(("timeout", "every"), [(1, 10), (20, 10), (30, 15), (300, 150)])
def test_a_file_is_refreshed_after_half_a_time_out_but_not_all_the_time(
    node: HealthNode, timeout: float, every: int
) -> None:
    written = []
    for second in range(2 * every + 1):
        node.report(device(timeout=timeout), device("d1", timeout=600))
        written += [second] * len(node.writes())
        node.time += 1
    assert written == [0, every, 2 * every]


def test_changes_are_written_and_expiry_is_not(node: HealthNode) -> None:
    node.report(device(), device("d1"))
    node.report(device(health=UNHEALTHY), device("d1"))
    assert node.writes() == ["store"] * 2
    node.passed(60)
    assert node.writes() == []
    node.report()
    assert node.writes() == []  # nothing was known before, and nothing is now
    node.store.forget(GPU)
    assert node.writes() == ["delete"]
    node.store.forget(GPU)
    assert node.writes() == []


def test_a_driver_without_devices_leaves_no_file(node: HealthNode) -> None:
    node.report()
    assert (node.writes(), node.changes) == ([], [])
    node.report(device())
    node.time += 31
    node.report()
    assert not node.file().exists()


def test_a_restart_does_not_change_when_a_file_is_refreshed(node: HealthNode) -> None:
    node.report(device())
    node.time += 14
    node.restart()
    assert (node.report(device()), node.writes()) == ([], [])
    node.time += 1
    assert (node.report(device()), node.writes()) == ([], ["store"])


def test_each_device_is_refreshed_in_its_own_time(node: HealthNode) -> None:
    node.report(device("a"))
    node.time += 10
    node.report(device("b"))  # written, and so is "a", with its old time
    node.time += 5
    node.writes()
    node.report(device("a"), device("b"))
    assert node.writes() == ["store"]


# A failing disk.


@pytest.mark.parametrize("failure", [no_space, lost_sync])
def test_what_the_disk_refuses_counts_all_the_same_and_is_written_with_the_next_report(
    node: HealthNode, failure: Any, caplog: pytest.LogCaptureFixture
) -> None:
    node.report(device(), device("d1"))
    node.disk.fail("store", failure(GPU))
    with caplog.at_level(logging.WARNING, "draState"):
        assert node.report(device(health=UNHEALTHY), device("d1")) == ["d0"]
        assert node.report(device(health=UNHEALTHY), device("d1")) == []
    assert node.health() is UNHEALTHY
    assert node.store.problems.keys() == {GPU}
    assert [record.message.split(":")[0] for record in caplog.records] == [f"health of driver {GPU}"]  # once

    node.disk.work_again()
    assert node.report(device(health=UNHEALTHY), device("d1")) == []

    assert node.store.problems == {}
    node.disk.fail("delete", failure(GPU))
    node.store.forget(GPU)
    assert (node.health(), set(node.store.problems)) == (UNKNOWN, {GPU})
    node.disk.work_again()
    node.store.forget(GPU)
    assert (node.store.problems, node.file().exists()) == ({}, False)


def test_what_cannot_be_stored_is_a_problem_of_its_driver(node: HealthNode) -> None:
    assert node.report(device(message="\ud800")) == ["d0"]
    assert node.store.problems.keys() == {GPU}
    assert node.health() is HEALTHY


def test_a_forked_process_refuses_reports(node: HealthNode, monkeypatch: pytest.MonkeyPatch) -> None:
    node.report(device())
    monkeypatch.setattr(os, "getpid", lambda: -1)
    with pytest.raises(ManagerClosed, match="fork"):
        node.store.report(GPU, [])
    monkeypatch.undo()


# Damage.


@pytest.mark.parametrize("make", [damage.ruin, damage.edit_by_hand, damage.make_too_large])
def test_a_damaged_file_costs_one_driver_until_its_next_report(node: HealthNode, make: Any) -> None:
    node.report(device())
    node.report(device(), driver=NIC)
    node.store.close()
    make(node.directory, GPU)

    node.start()

    assert (node.health(), node.health(driver=NIC)) == (UNKNOWN, HEALTHY)
    assert node.store.problems.keys() == {GPU}
    assert node.report(device()) == ["d0"]
    assert node.store.problems == {}
    node.restart()
    assert node.health() is HEALTHY


def test_a_file_of_a_newer_program_stays_as_it_is_and_reports_count_all_the_same(node: HealthNode) -> None:
    node.report(device())
    node.store.close()
    damage.make_too_new(node.directory, GPU)
    before = node.file().read_bytes()

    node.start()

    assert node.health() is UNKNOWN
    assert node.report(device(health=UNHEALTHY)) == ["d0"]
    assert node.health() is UNHEALTHY
    assert "newer program" in node.store.problems[GPU]
    assert node.file().read_bytes() == before


def test_fields_of_a_newer_program_are_ignored_and_go_with_the_next_report(node: HealthNode) -> None:
    newer: Schema[Any] = Schema(DEVICE_HEALTH.kind, version=2, readable_by=1)
    plain = {"pool_name": "p", "device_name": "d0", "health": "Healthy", "reported": node.time, "severity": 3}
    node.store.close()
    with CheckpointManager(node.directory, newer, boot_id=BOOT) as other:
        other.create_checkpoint(GPU, {"devices": [plain]})
    node.start()
    assert node.health() is HEALTHY
    node.report(device(health=UNHEALTHY))
    (kept,) = json.loads(node.file().read_bytes())["data"]["devices"]
    assert "severity" not in kept


def test_a_file_with_too_many_devices_is_cut(node: HealthNode, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("draState._health.store.MOST_DEVICES", 8)
    node.store.close()
    devices = tuple(DeviceHealth("p", f"d{n}", HEALTHY, reported=node.time) for n in range(9))
    with CheckpointManager(node.directory, DEVICE_HEALTH, boot_id=BOOT) as other:
        other.create_checkpoint(GPU, DriverHealth(devices))
    node.start()
    assert [d.device_name for d in node.store.drivers()[GPU]] == [d.device_name for d in devices[:-1]]


# The shape.


def test_every_version_so_far_is_read(directory: Path) -> None:
    directory.mkdir(mode=0o700)
    (directory / f"{GPU}.json").write_bytes((DATA / "devicehealth-v1.json").read_bytes())
    with DeviceHealthStore(directory, clock=lambda: 1010.0, boot_id=BOOT) as store:
        assert store.drivers() == {
            GPU: (
                DeviceHealth("node-7", "gpu-0", HEALTHY, "", 30.0, 1000.0),
                DeviceHealth("node-7", "gpu-1", UNHEALTHY, "ECC errors", 12.5, 1000.0),
                DeviceHealth("racks/3", "gpu-0", UNKNOWN, "checking", 600.0, 990.25),
            )
        }
    assert DEVICE_HEALTH.version == 1


def test_neither_a_message_nor_anything_else_of_the_data_is_printed(node: HealthNode) -> None:
    node.report(device(message="s3cret"))
    assert "s3cret" not in repr(node.store.get(GPU, "p", "d0"))
