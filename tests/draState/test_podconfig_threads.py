"""Pod configs in many threads: readers never wait, and writers do not lose each other's changes."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path

import pytest

from checkpointmanager import RetainRefused
from draState import PodConfigStore, PodSyncReport, ReconcileRefused

from .podconfigs import config_of, mtus, mtus_on_disk, opened

NOON = datetime(2026, 11, 16, 12, tzinfo=UTC)


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
        assert self.go_on.wait(20)
        self._sync(descriptor)


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> SlowDisk:
    return SlowDisk(monkeypatch)


def test_reads_do_not_wait_for_a_writer(real_directory: Path, disk: SlowDisk) -> None:
    store = opened(real_directory)
    store.set_device_config("pod-1", "eth0", config_of(mtu=1))

    with ThreadPoolExecutor() as pool:
        disk.slow_down()
        writing = pool.submit(store.set_device_config, "pod-1", "eth0", config_of(mtu=2))
        assert disk.reached.wait(20)
        try:
            assert mtus(store) == {"pod-1": {"eth0": 1}}
            store.note_activity("pod-1", NOON)
            assert store.last_activity("pod-1") == NOON
            assert store.problems == {}
            assert not writing.done()
        finally:
            disk.go_on.set()
        writing.result()
    assert mtus(store) == {"pod-1": {"eth0": 2}}
    assert store.last_activity("pod-1") == NOON
    store.close()


@pytest.mark.parametrize(
    "removal",
    [
        lambda store: store.delete_pod("pod-1"),
        lambda store: store.delete_claim("claim-1"),
        lambda store: store.synchronize(list, complete=True),
    ],
    ids=["delete_pod", "delete_claim", "synchronize"],
)
def test_a_removal_waits_for_a_set_that_has_begun(
    removal: Callable[[PodConfigStore], object], real_directory: Path, disk: SlowDisk
) -> None:
    store = opened(real_directory)
    store.set_device_config("pod-1", "eth0", config_of("claim-1", 1))

    with ThreadPoolExecutor() as pool:
        disk.slow_down()
        setting = pool.submit(store.set_device_config, "pod-1", "eth0", config_of("claim-1", 2))
        assert disk.reached.wait(20)
        removing = pool.submit(removal, store)
        try:
            with pytest.raises(TimeoutError):
                removing.result(0.1)
        finally:
            disk.go_on.set()
        setting.result()
        removing.result()

    assert mtus(store) == mtus_on_disk(real_directory)
    store.close()


def test_threads_do_not_lose_each_others_changes(real_directory: Path) -> None:
    store = opened(real_directory)
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
    assert mtus(store) == mtus_on_disk(real_directory) == {"pod-1": last, "pod-2": last}
    store.close()


def test_a_pod_that_is_set_after_the_list_was_made_is_spared(directory: Path) -> None:
    with opened(directory) as store:
        store.set_device_config("gone", "eth0", config_of())
        store.set_device_config("back", "eth0", config_of())

        def made_too_early() -> list[str]:
            store.set_device_config("new", "eth0", config_of())
            store.set_device_config("back", "eth1", config_of())
            return []

        assert store.synchronize(made_too_early, complete=True) == PodSyncReport(("gone",), ("back", "new"), {}, {})
        assert store.list_pods() == ["back", "new"]


def test_activity_saves_no_pod_that_is_gone(directory: Path) -> None:
    with opened(directory) as store:
        store.set_device_config("gone", "eth0", config_of())

        def busy() -> list[str]:
            store.note_activity("gone")
            store.set_network_namespace("gone", "/run/netns/gone")
            return []

        assert store.synchronize(busy, complete=True).removed == ("gone",)


def test_a_list_that_is_not_complete_removes_nothing(directory: Path) -> None:
    with opened(directory) as store:
        store.set_device_config("pod-1", "eth0", config_of())

        with pytest.raises(ReconcileRefused):
            store.synchronize(list, complete=False)

        assert store.list_pods() == ["pod-1"]


def test_a_list_without_most_pods_removes_nothing_unless_that_is_allowed(directory: Path) -> None:
    """An empty answer of a runtime that has just started looks like a node without pods."""
    with opened(directory) as store:
        for number in range(8):
            store.set_device_config(f"pod-{number}", "eth0", config_of())

        with pytest.raises(RetainRefused, match="8 of 8"):
            store.synchronize(list, complete=True)
        assert len(store) == 8

        assert len(store.synchronize(list, complete=True, at_most=1).removed) == 8
        assert len(store) == 0
