"""Claims that were confused, blocked, leaked or handed out twice, replayed on draState."""

from __future__ import annotations

import os
import signal
import threading
from pathlib import Path

import pytest

from checkpointmanager import CheckpointManager
from draState import ClaimConflict, ClaimNotPrepared, DeviceConfig, PodConfigStore, PrepareFailed, ReconcileRefused
from tests.checkpointmanager.processes import LIMIT, Child

from .gpus import DRIVER, POOL, GpuDriver, node, pod

POD = pod("pod-1", gpu="uid-1")


def test_kubernetes_81324_the_first_reconcile_after_a_restart_wipes_nothing(directory: Path, driver: GpuDriver) -> None:
    """The first reconcile ran before the pods were known, took all of them for gone, and wiped every entry."""
    with node(directory, driver) as agent:
        agent.prepare_resources(POD)

    with node(directory, driver) as agent:
        with pytest.raises(ReconcileRefused):
            agent.reconcile([], complete=False)
        assert len(agent.cache) == 1
        assert driver.unprepared == []

        agent.reconcile([POD], complete=True)
        assert len(agent.cache) == 1
        agent.reconcile([], complete=True)
        assert driver.unprepared == ["uid-1"], "when it is certain that no pod is left"


def test_kubernetes_131617_a_new_claim_of_the_same_name_is_not_the_old_one(directory: Path, driver: GpuDriver) -> None:
    """A claim was force-deleted and made anew under its name; the cache knew names only and used the old entry."""
    with node(directory, driver) as agent:
        agent.prepare_resources(pod("pod-old", gpu="uid-old"))
        anew = pod("pod-new", gpu="uid-new")

        with pytest.raises(ClaimConflict, match=r"uid-new.*uid-old") as conflict:
            agent.prepare_resources(anew)

        assert (conflict.value.uid, conflict.value.other) == ("uid-new", "uid-old")
        assert driver.set_up == {"gpu-0": "uid-old"}, "neither used nor freed"
        with pytest.raises(ClaimNotPrepared):
            agent.get_resources(anew, "main")
        agent.unprepare_resources("pod-old")
        agent.prepare_resources(anew)
        assert agent.cache.holders(DRIVER, POOL, "gpu-0") == {"uid-new"}


def test_whereabouts_176_deleting_the_old_pod_frees_nothing_of_its_namesake(directory: Path, driver: GpuDriver) -> None:
    """A StatefulSet's pod came back under its old name, and the late deletion of the old one freed its address."""
    driver.allocations = {"uid-old": "gpu-0", "uid-new": "gpu-1"}
    with node(directory, driver) as agent:
        agent.prepare_resources(pod("web-0.old", data_old="uid-old"))
        agent.prepare_resources(pod("web-0.new", data_new="uid-new"))

        agent.unprepare_resources("web-0.old")

        assert driver.set_up == {"gpu-1": "uid-new"}
    with node(directory, driver) as agent:
        assert [claim.uid for claim in agent.cache] == ["uid-new"]


def test_kubernetes_124323_a_failed_prepare_blocks_no_unprepare(directory: Path, driver: GpuDriver) -> None:
    """The pod was noted before the driver had prepared for it and never struck off, so the claim stayed for ever."""
    driver.broken = "no such device"
    with node(directory, driver) as agent:
        with pytest.raises(PrepareFailed, match="no such device"):
            agent.prepare_resources(POD)
        assert agent.pod_might_need_to_unprepare("pod-1"), "the driver may have done half of it"
        with pytest.raises(ClaimNotPrepared):
            agent.get_resources(POD, "main")

        driver.broken = ""
        agent.unprepare_resources("pod-1")

        assert not agent.pod_might_need_to_unprepare("pod-1")
    with node(directory, driver) as agent:
        assert len(agent.cache) == 0


def test_nvidia_729_a_second_prepare_does_not_set_a_completed_claim_back(
    real_directory: Path, driver: GpuDriver
) -> None:
    """Preparing a completed claim again wrote it back to Started, and then it could not be unprepared any more."""

    def prepare_again_and_die(saying: int) -> None:
        again = GpuDriver()
        again.before_answer = lambda: os.kill(os.getpid(), signal.SIGKILL)
        with node(real_directory, again) as agent:
            os.write(saying, b"again")
            agent.prepare_resources(POD)

    with node(real_directory, driver) as agent:
        agent.prepare_resources(POD)
        agent.prepare_resources(POD)
        assert driver.prepared == ["uid-1"], "what is prepared is left alone"
    with Child(prepare_again_and_die) as child:
        assert child.read_to_end() == b"again"
        assert child.wait() == -signal.SIGKILL

    with node(real_directory, driver) as agent:
        assert agent.cache.holders(DRIVER, POOL, "gpu-0") == {"uid-1"}, "its devices are still on record"
        agent.unprepare_resources("pod-1")
        assert driver.set_up == {}
        assert len(agent.cache) == 0


def test_nvidia_839_a_cleanup_does_not_overwrite_what_is_prepared_meanwhile(directory: Path, driver: GpuDriver) -> None:
    """The cleanup loop read the checkpoint without the lock that writers hold, and worked on what was past."""
    shared = pod("pod-2", gpu="uid-1")
    with node(directory, driver) as agent:
        agent.prepare_resources(POD)
        joining = threading.Thread(target=agent.prepare_resources, args=(shared,))
        driver.before_answer = lambda: joining.start() if not joining.ident else None

        agent.reconcile([shared], complete=True)  # in the middle of which pod-2 comes to use the same claim
        joining.join(LIMIT)

        assert not joining.is_alive()
        assert agent.get_resources(shared, "main").cdi_devices == (f"{DRIVER}/gpu=gpu-0",)
        assert driver.set_up == {"gpu-0": "uid-1"}
    with node(directory, driver) as agent:
        assert [claim.state.pod_uids for claim in agent.cache] == [{"pod-2"}]


def test_nvidia_841_the_read_of_a_change_is_under_the_lock_of_its_write(real_directory: Path) -> None:
    """What was read before the lock was taken was written back after it: the change of another was lost."""
    with CheckpointManager(real_directory) as manager:
        manager.create_checkpoint("claims", ["a"])
        stale = manager.get_checkpoint("claims").data
        manager.create_checkpoint("claims", ["a", "b"])
        manager.create_checkpoint("claims", [*stale, "c"])
        assert manager.get_checkpoint("claims").data == ["a", "c"], "the way that failed"

        other = threading.Thread(target=manager.update_checkpoint, args=("claims", lambda claims: [*claims, "e"]))

        def slowly(claims: list[str]) -> list[str]:
            other.start()
            other.join(0.1)
            assert other.is_alive(), "it waits"
            return [*claims, "d"]

        manager.update_checkpoint("claims", slowly)
        other.join(LIMIT)
        assert manager.get_checkpoint("claims").data == ["a", "c", "d", "e"]


def test_nvidia_840_a_vanished_claim_gives_its_device_back(directory: Path, driver: GpuDriver) -> None:
    """Entries of claims that were long gone stayed, and new claims were refused the devices they held."""
    anew = pod("pod-2", anew="uid-2")  # the scheduler gives it the same gpu-0
    with node(directory, driver) as agent:
        agent.prepare_resources(POD)

    with node(directory, driver) as agent:  # meanwhile pod and claim were deleted
        with pytest.raises(PrepareFailed, match="already allocated to different claim uid-1"):
            agent.prepare_resources(anew)
        assert agent.cache.pods() == {"pod-1", "pod-2"}, "the holder of each device can be listed"

        agent.reconcile([anew], complete=True)

        agent.prepare_resources(anew)
        assert driver.set_up == {"gpu-0": "uid-2"}
        assert [claim.uid for claim in agent.cache] == ["uid-2"]


def test_dranet_232_a_list_that_is_older_than_a_pod_removes_nothing_of_it(real_directory: Path) -> None:
    """At start the driver listed the pods of the runtime, and removed the configs of one that came meanwhile."""
    config = DeviceConfig({"mtu": 9000}, "uid-1", "net", "default")
    with PodConfigStore(real_directory) as store:

        def listed_too_early() -> list[str]:
            store.set_device_config("pod-1", "eth0", config)
            return []

        assert store.synchronize(listed_too_early, complete=True).removed == ()
        assert store.get_device_config("pod-1", "uid-1", "eth0") == config
