"""Pod configs on a disk that fails: a failed set changes nothing, a failed delete still takes effect in memory."""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from checkpointmanager import CheckpointWriteFailed
from checkpointmanager.testing import failing
from draState import PodConfigStore, PodSyncReport

from .failing_disk import full, unsynced
from .podconfigs import BEFORE, config_of, filled, mtus, mtus_on_disk, opened, restarted


@pytest.fixture
def store(real_directory: Path) -> Iterator[PodConfigStore]:
    with filled(real_directory) as store:
        yield store


def test_a_set_on_a_full_disk_changes_nothing(store: PodConfigStore, real_directory: Path) -> None:
    with full(real_directory):
        for pod in ("pod-1", "pod-3"):
            with pytest.raises(CheckpointWriteFailed) as failed:
                store.set_device_config(pod, "eth0", config_of(mtu=9))
            assert (failed.value.errno, failed.value.in_doubt) == (errno.ENOSPC, False)
        with pytest.raises(CheckpointWriteFailed):
            store.set_pod_config("pod-1", {"a": 1})

    assert mtus(store) == mtus_on_disk(real_directory) == BEFORE
    kept = store.get_pod_config("pod-1")
    assert kept is not None
    assert kept.config is None
    assert restarted(store, real_directory) == BEFORE


def test_the_same_set_succeeds_when_there_is_room_again(store: PodConfigStore, real_directory: Path) -> None:
    with full(real_directory), pytest.raises(CheckpointWriteFailed):
        store.set_device_config("pod-1", "eth0", config_of(mtu=9))

    store.set_device_config("pod-1", "eth0", config_of(mtu=9))

    assert mtus(store)["pod-1"] == mtus_on_disk(real_directory)["pod-1"] == {"eth0": 9, "eth1": 2}


def test_a_set_in_doubt_is_reported_and_memory_does_not_run_ahead(store: PodConfigStore, real_directory: Path) -> None:
    with unsynced(real_directory), pytest.raises(CheckpointWriteFailed) as failed:
        store.set_device_config("pod-1", "eth0", config_of(mtu=9))

    assert failed.value.in_doubt
    assert mtus(store) == mtus_on_disk(real_directory) == BEFORE


@pytest.mark.parametrize("mtu", [9, 1])
def test_a_set_in_doubt_is_settled_by_the_next_one(mtu: int, store: PodConfigStore, real_directory: Path) -> None:
    with unsynced(real_directory), pytest.raises(CheckpointWriteFailed):
        store.set_device_config("pod-1", "eth0", config_of("claim-1", 9))

    store.set_device_config("pod-1", "eth0", config_of("claim-1", mtu))

    assert mtus(store) == mtus_on_disk(real_directory)
    assert restarted(store, real_directory)["pod-1"] == {"eth0": mtu, "eth1": 2}


def test_an_interrupted_set_leaves_memory_as_it_was(store: PodConfigStore, real_directory: Path) -> None:
    with unsynced(real_directory, KeyboardInterrupt()), pytest.raises(KeyboardInterrupt):
        store.set_device_config("pod-1", "eth0", config_of(mtu=9))

    assert mtus(store) == BEFORE


def test_synchronize_settles_what_is_in_doubt_for_what_memory_has(store: PodConfigStore, real_directory: Path) -> None:
    with unsynced(real_directory), pytest.raises(CheckpointWriteFailed):
        store.set_device_config("pod-1", "eth0", config_of(mtu=9))
    with unsynced(real_directory), pytest.raises(CheckpointWriteFailed):
        store.set_device_config("pod-3", "eth0", config_of(mtu=9))

    report = store.synchronize(lambda: ["pod-1", "pod-2", "pod-3"], complete=True)

    assert report == PodSyncReport(("pod-3",), ("pod-1", "pod-2"), {}, {})
    assert mtus(store) == mtus_on_disk(real_directory) == BEFORE


@pytest.mark.parametrize("doubt", [unsynced, lambda directory: unsynced(directory, KeyboardInterrupt())])
def test_a_claim_whose_set_is_in_doubt_can_be_deleted(
    doubt: Callable[[Path], AbstractContextManager[object]], store: PodConfigStore, real_directory: Path
) -> None:
    with doubt(real_directory):
        for pod in ("pod-1", "pod-3"):
            with pytest.raises((CheckpointWriteFailed, KeyboardInterrupt)):
                store.set_device_config(pod, "eth2", config_of("claim-3", 9))

    assert store.delete_claim("claim-3") == ("pod-1", "pod-3")

    assert restarted(store, real_directory) == BEFORE


def test_a_failed_delete_still_removes_the_pod_from_memory(store: PodConfigStore, real_directory: Path) -> None:
    with unsynced(real_directory), pytest.raises(CheckpointWriteFailed) as failed:
        store.delete_pod("pod-1")

    assert failed.value.in_doubt
    assert "pod-1" not in store
    assert store.get_pod_config("pod-1") is None
    assert mtus_on_disk(real_directory) == BEFORE


def test_what_a_failed_delete_left_is_found_by_synchronize(store: PodConfigStore, real_directory: Path) -> None:
    with unsynced(real_directory), pytest.raises(CheckpointWriteFailed):
        store.delete_pod("pod-1")

    report = store.synchronize(lambda: ["pod-1", "pod-2"], complete=True)

    assert report == PodSyncReport(("pod-1",), ("pod-2",), {}, {})
    assert mtus_on_disk(real_directory) == {"pod-2": {"eth0": 3}}


def test_what_a_failed_delete_left_is_found_by_synchronize_of_the_next_process(
    store: PodConfigStore, real_directory: Path
) -> None:
    with unsynced(real_directory), pytest.raises(CheckpointWriteFailed):
        store.delete_pod("pod-1")
    store.close()

    with opened(real_directory) as after:
        assert after.synchronize(lambda: ["pod-2"], complete=True).removed == ("pod-1",)
        assert mtus(after) == mtus_on_disk(real_directory) == {"pod-2": {"eth0": 3}}


def test_a_delete_can_be_repeated(store: PodConfigStore, real_directory: Path) -> None:
    with unsynced(real_directory), pytest.raises(CheckpointWriteFailed):
        store.delete_pod("pod-1")

    store.delete_pod("pod-1")

    assert mtus_on_disk(real_directory) == {"pod-2": {"eth0": 3}}


def test_a_pod_that_is_set_after_a_failed_delete_starts_anew(store: PodConfigStore, real_directory: Path) -> None:
    with unsynced(real_directory), pytest.raises(CheckpointWriteFailed):
        store.delete_pod("pod-1")

    store.set_device_config("pod-1", "eth7", config_of(mtu=7))

    assert mtus(store)["pod-1"] == mtus_on_disk(real_directory)["pod-1"] == {"eth7": 7}


@pytest.mark.parametrize("fault", [full, unsynced])
def test_a_failed_delete_of_a_claim_takes_effect_in_memory_and_is_finished_when_repeated(
    fault: Callable[[Path], AbstractContextManager[object]], store: PodConfigStore, real_directory: Path
) -> None:
    with fault(real_directory), pytest.raises(CheckpointWriteFailed):
        store.delete_claim("claim-1")
    assert mtus(store) == {"pod-1": {"eth1": 2}}

    concerned = store.delete_claim("claim-1")

    assert "pod-2" in concerned or fault is full
    assert mtus_on_disk(real_directory) == {"pod-1": {"eth1": 2}}
    assert restarted(store, real_directory) == {"pod-1": {"eth1": 2}}


def test_a_repeated_delete_of_a_claim_names_only_its_own_pods(store: PodConfigStore, real_directory: Path) -> None:
    with full(real_directory), pytest.raises(CheckpointWriteFailed):
        store.delete_claim("claim-1")

    assert store.delete_claim("claim-3") == ()
    assert store.delete_claim("claim-1") == ("pod-1", "pod-2")


def test_a_repeated_delete_of_a_claim_concerns_only_the_pods_where_it_failed(
    store: PodConfigStore, real_directory: Path
) -> None:
    with failing(real_directory, "write", errno.EIO), pytest.raises(CheckpointWriteFailed):
        store.delete_claim("claim-1")

    assert store.delete_claim("claim-1") == ("pod-1",)


def test_a_set_that_certainly_failed_leaves_nothing_of_its_claim(store: PodConfigStore, real_directory: Path) -> None:
    with full(real_directory), pytest.raises(CheckpointWriteFailed):
        store.set_device_config("pod-1", "eth2", config_of("claim-3"))

    assert store.delete_claim("claim-3") == ()


def test_synchronize_finishes_the_failed_delete_of_a_claim(store: PodConfigStore, real_directory: Path) -> None:
    with full(real_directory), pytest.raises(CheckpointWriteFailed):
        store.delete_claim("claim-1")

    report = store.synchronize(lambda: ["pod-1", "pod-2"], complete=True)

    assert report == PodSyncReport(("pod-2",), ("pod-1",), {}, {})
    assert mtus_on_disk(real_directory) == {"pod-1": {"eth1": 2}}


def test_synchronize_on_a_failing_disk_serves_only_live_pods_and_says_what_is_left(
    store: PodConfigStore, real_directory: Path
) -> None:
    store.set_device_config("pod-3", "eth0", config_of(mtu=4))
    with unsynced(real_directory):
        report = store.synchronize(lambda: ["pod-2"], complete=True)

    assert (report.removed, report.kept, sorted(report.failed)) == ((), ("pod-2",), ["pod-1", "pod-3"])
    assert "Input/output error" in report.failed["pod-1"]
    assert mtus(store) == {"pod-2": {"eth0": 3}}
    assert store.synchronize(lambda: ["pod-2"], complete=True).removed == ("pod-1", "pod-3")
    assert mtus_on_disk(real_directory) == {"pod-2": {"eth0": 3}}
