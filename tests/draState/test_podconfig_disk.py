"""Pod configs on a bad disk and in many threads.

A failed set changes nothing, a failed delete still takes effect in memory, damage costs its own pod and no other,
readers never wait, and writers do not lose each other's changes.
"""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from datetime import UTC, datetime
from pathlib import Path

import pytest

from checkpointmanager import CheckpointWriteFailed
from draState import PodConfig, PodConfigStore, PodSyncReport

from .podconfigs import BEFORE, config_of, filled, full, mtus, mtus_on_disk, opened, restarted, unsynced

Fault = Callable[[Path], AbstractContextManager[object]]
pytestmark = pytest.mark.usefixtures("kit_standing_by")
NOON = datetime(2026, 11, 16, 12, tzinfo=UTC)


@pytest.fixture
def store(directory: Path) -> Iterator[PodConfigStore]:
    with filled(directory) as store:
        yield store


# Sets that fail


def test_a_set_on_a_full_disk_changes_nothing_and_can_be_repeated(store: PodConfigStore, directory: Path) -> None:
    with full(directory):
        for pod in ("pod-1", "pod-3"):
            with pytest.raises(CheckpointWriteFailed) as failed:
                store.set_device_config(pod, "eth0", config_of("claim-3", 9))
            assert (failed.value.errno, failed.value.in_doubt) == (errno.ENOSPC, False)
        with pytest.raises(CheckpointWriteFailed):
            store.set_pod_config("pod-1", {"a": 1})

    assert mtus(store) == mtus_on_disk(directory) == BEFORE
    kept = store.get_pod_config("pod-1")
    assert kept is not None
    assert kept.config is None
    assert store.delete_claim("claim-3") == ()
    store.set_device_config("pod-1", "eth0", config_of(mtu=9))
    assert restarted(store, directory)["pod-1"] == {"eth0": 9, "eth1": 2}


@pytest.mark.parametrize("mtu", [9, 1])
def test_a_set_in_doubt_leaves_memory_as_it_was_and_is_settled_by_the_next_one(
    mtu: int, store: PodConfigStore, directory: Path
) -> None:
    with unsynced(directory), pytest.raises(CheckpointWriteFailed) as failed:
        store.set_device_config("pod-1", "eth0", config_of("claim-1", 9))
    assert failed.value.in_doubt
    assert mtus(store) == mtus_on_disk(directory) == BEFORE

    store.set_device_config("pod-1", "eth0", config_of("claim-1", mtu))

    assert mtus(store) == mtus_on_disk(directory)
    assert restarted(store, directory)["pod-1"] == {"eth0": mtu, "eth1": 2}


def test_synchronize_settles_what_is_in_doubt_for_what_memory_has(store: PodConfigStore, directory: Path) -> None:
    for pod in ("pod-1", "pod-3"):
        with unsynced(directory), pytest.raises(CheckpointWriteFailed):
            store.set_device_config(pod, "eth0", config_of(mtu=9))

    report = store.synchronize(lambda: ["pod-1", "pod-2", "pod-3"], complete=True)

    assert report == PodSyncReport(("pod-3",), ("pod-1", "pod-2"), {}, {})
    assert mtus(store) == mtus_on_disk(directory) == BEFORE


@pytest.mark.parametrize("doubt", [unsynced, lambda directory: unsynced(directory, KeyboardInterrupt())])
def test_a_claim_whose_set_is_in_doubt_can_be_deleted(doubt: Fault, store: PodConfigStore, directory: Path) -> None:
    with doubt(directory):
        for pod in ("pod-1", "pod-3"):
            with pytest.raises((CheckpointWriteFailed, KeyboardInterrupt)):
                store.set_device_config(pod, "eth2", config_of("claim-3", 9))
    assert mtus(store) == BEFORE

    assert store.delete_claim("claim-3") == ("pod-1", "pod-3")

    assert restarted(store, directory) == BEFORE


# Deletes that fail


def synchronized(store: PodConfigStore) -> None:
    report = store.synchronize(lambda: ["pod-1", "pod-2"], complete=True)
    assert report == PodSyncReport(("pod-1",), ("pod-2",), {}, {})


def deleted_again(store: PodConfigStore) -> None:
    store.delete_pod("pod-1")


def set_anew(store: PodConfigStore) -> None:
    store.set_device_config("pod-1", "eth7", config_of(mtu=7))


@pytest.mark.parametrize(
    ("remedy", "left"),
    [
        (synchronized, {"pod-2": {"eth0": 3}}),
        (deleted_again, {"pod-2": {"eth0": 3}}),
        (set_anew, {"pod-1": {"eth7": 7}, "pod-2": {"eth0": 3}}),
    ],
)
def test_a_failed_delete_of_a_pod_takes_effect_in_memory_and_is_made_good(
    remedy: Callable[[PodConfigStore], None], left: object, store: PodConfigStore, directory: Path
) -> None:
    with unsynced(directory), pytest.raises(CheckpointWriteFailed) as failed:
        store.delete_pod("pod-1")
    assert failed.value.in_doubt
    assert "pod-1" not in store
    assert store.get_pod_config("pod-1") is None
    assert mtus_on_disk(directory) == BEFORE

    remedy(store)

    assert mtus(store) == mtus_on_disk(directory) == left


def test_what_a_failed_delete_left_is_found_by_synchronize_of_the_next_process(
    store: PodConfigStore, directory: Path
) -> None:
    with unsynced(directory), pytest.raises(CheckpointWriteFailed):
        store.delete_pod("pod-1")
    store.close()

    with opened(directory) as after:
        assert after.synchronize(lambda: ["pod-2"], complete=True).removed == ("pod-1",)
        assert mtus(after) == mtus_on_disk(directory) == {"pod-2": {"eth0": 3}}


@pytest.mark.parametrize("fault", [full, unsynced])
def test_a_failed_delete_of_a_claim_takes_effect_in_memory_and_is_finished_when_repeated(
    fault: Fault, store: PodConfigStore, directory: Path
) -> None:
    with fault(directory), pytest.raises(CheckpointWriteFailed):
        store.delete_claim("claim-1")
    assert mtus(store) == {"pod-1": {"eth1": 2}}
    assert store.delete_claim("claim-3") == ()

    concerned = store.delete_claim("claim-1")

    assert concerned == ("pod-1", "pod-2") or fault is unsynced
    assert mtus_on_disk(directory) == {"pod-1": {"eth1": 2}}
    assert restarted(store, directory) == {"pod-1": {"eth1": 2}}


def test_synchronize_finishes_the_failed_delete_of_a_claim(store: PodConfigStore, directory: Path) -> None:
    with full(directory), pytest.raises(CheckpointWriteFailed):
        store.delete_claim("claim-1")

    report = store.synchronize(lambda: ["pod-1", "pod-2"], complete=True)

    assert report == PodSyncReport(("pod-2",), ("pod-1",), {}, {})
    assert mtus_on_disk(directory) == {"pod-1": {"eth1": 2}}


def test_synchronize_on_a_failing_disk_serves_only_live_pods_and_says_what_is_left(
    store: PodConfigStore, directory: Path
) -> None:
    store.set_device_config("pod-3", "eth0", config_of(mtu=4))
    with unsynced(directory):
        report = store.synchronize(lambda: ["pod-2"], complete=True)

    assert (report.removed, report.kept, sorted(report.failed)) == ((), ("pod-2",), ["pod-1", "pod-3"])
    assert "Input/output error" in report.failed["pod-1"]
    assert mtus(store) == {"pod-2": {"eth0": 3}}
    assert store.synchronize(lambda: ["pod-2"], complete=True).removed == ("pod-1", "pod-3")
    assert mtus_on_disk(directory) == {"pod-2": {"eth0": 3}}


# Damage


def test_damage_beyond_repair_costs_its_own_pod_until_it_is_set_again(store: PodConfigStore, directory: Path) -> None:
    store.close()
    (directory / "pod-1.json").write_bytes(b"damage")

    with opened(directory) as after:
        assert mtus(after) == {"pod-2": {"eth0": 3}}
        assert after.problems.keys() == {"pod-1"}
        assert str(directory / "pod-1.json") in after.problems["pod-1"]
        assert after.delete_claim("claim-1") == ("pod-2",)
        report = after.synchronize(lambda: ["pod-1"], complete=True)
        assert (report.kept, report.problems) == ((), after.problems)
        assert (directory / "pod-1.json").read_bytes() == b"damage"

        after.set_device_config("pod-1", "eth0", config_of(mtu=7))

        assert after.problems == {}
        assert after.get_pod_config("pod-1") == PodConfig({"claim-1/eth0": config_of(mtu=7)})
    assert mtus_on_disk(directory)["pod-1"] == {"eth0": 7}
    assert b"damage" in [path.read_bytes() for path in (directory / ".quarantine").iterdir()]


def test_a_damaged_file_of_a_pod_that_is_gone_is_removed_and_its_bytes_are_kept(
    store: PodConfigStore, directory: Path
) -> None:
    store.close()
    for pod in ("pod-1", "pod-2"):
        (directory / f"{pod}.json").write_bytes(b"damage")

    with opened(directory) as after:
        after.delete_pod("pod-2")  # never needs to parse it
        assert after.problems.keys() == {"pod-1"}
        assert after.synchronize(list, complete=True) == PodSyncReport(("pod-1",), (), {}, {})
        assert after.problems == {}

    assert {path.read_bytes() for path in (directory / ".quarantine").iterdir()} == {b"damage"}
    assert mtus_on_disk(directory) == {}


# Threads


class SlowDisk:
    """After `slow_down`, every sync waits until `go_on` is set; `reached` is set when the first one waits."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self._patch = patch
        self._sync = os.fdatasync
        self.reached, self.go_on = threading.Event(), threading.Event()

    def slow_down(self) -> None:
        self._patch.setattr(os, "fdatasync", self._wait)

    def _wait(self, descriptor: int) -> None:
        self.reached.set()
        assert self.go_on.wait(120)
        self._sync(descriptor)


def remove_nothing(_: PodConfigStore) -> None:
    pass


@pytest.mark.parametrize(
    "removal",
    [
        remove_nothing,
        lambda store: store.delete_pod("pod-2"),
        lambda store: store.delete_claim("claim-1"),
        lambda store: store.synchronize(lambda: ["pod-1"], complete=True),
    ],
    ids=["none", "delete_pod", "delete_claim", "synchronize"],
)
def test_reads_do_not_wait_for_a_writer_and_removals_do(
    removal: Callable[[PodConfigStore], object],
    store: PodConfigStore,
    directory: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    disk = SlowDisk(monkeypatch)
    with ThreadPoolExecutor() as pool:
        disk.slow_down()
        writing = pool.submit(store.set_device_config, "pod-2", "eth0", config_of("claim-1", 9))
        assert disk.reached.wait(120)
        try:
            assert mtus(store) == BEFORE
            store.note_activity("pod-2", NOON)
            assert store.last_activity("pod-2") == NOON
            assert store.problems == {}
            removing = pool.submit(removal, store)
            if removal is not remove_nothing:
                with pytest.raises(TimeoutError):
                    removing.result(0.1)
        finally:
            disk.go_on.set()
        writing.result()
        removing.result()

    assert mtus(store) == mtus_on_disk(directory)
    assert store.last_activity("pod-2") == (NOON if "pod-2" in store else None)


def test_threads_do_not_lose_each_others_changes(directory: Path) -> None:
    store = opened(directory)
    rounds = 8

    def devices(number: int) -> None:
        for turn in range(rounds):
            for pod in ("pod-1", "pod-2"):
                store.set_device_config(pod, f"eth{number}", config_of(f"claim-{number}", turn))
                store.note_activity(pod)
            store.set_device_config(f"own-{number}", "eth0", config_of("passing"))
            store.delete_pod(f"own-{number}")

    def claims() -> None:
        for turn in range(rounds):
            store.set_device_config("pod-1", "passing", config_of("passing", turn))
            store.delete_claim("passing")
            store.synchronize(lambda: ["pod-1", "pod-2", *(f"own-{n}" for n in range(4))], complete=True)

    def reads() -> None:
        for _ in range(rounds * 20):
            for pod in store.list_pods():
                if found := store.get_pod_config(pod):
                    assert all(type(device.config["mtu"]) is int for device in found.devices.values())

    with ThreadPoolExecutor(8) as pool:
        for done in [*(pool.submit(devices, n) for n in range(4)), pool.submit(claims), pool.submit(reads)]:
            done.result()

    last = {f"eth{number}": rounds - 1 for number in range(4)}
    assert mtus(store) == mtus_on_disk(directory) == {"pod-1": last, "pod-2": last}
    store.close()
