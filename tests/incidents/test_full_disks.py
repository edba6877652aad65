"""Writes that could not be made, and what became of the state in memory and on disk."""

from __future__ import annotations

import errno
import os
import signal
from pathlib import Path

import pytest

from checkpointmanager import CheckpointError, CheckpointWriteFailed
from draState import ClaimNotPrepared
from tests.checkpointmanager.processes import Child

from .disk import Disk
from .gpus import DRIVER, POOL, GpuDriver, node, pod
from .sandboxes import Sandbox, names, opened

POD = pod("pod-1", gpu="uid-1")


def test_kubernetes_85831_a_full_disk_fails_nothing_that_changes_nothing(
    directory: Path, disk: Disk, driver: GpuDriver
) -> None:
    """On a full disk writing an unchanged checkpoint failed too; running pods were rejected, deleted and stayed so."""
    with node(directory, driver) as agent:
        agent.prepare_resources(POD)
        disk.fill()
        agent.prepare_resources(POD)

    with node(directory, driver) as agent:  # and neither does a restart need space
        agent.prepare_resources(POD)
        assert agent.get_resources(POD, "main").cdi_devices == (f"{DRIVER}/gpu=gpu-0",)


def test_kubernetes_94305_what_needs_space_fails_and_succeeds_when_there_is_some(directory: Path, disk: Disk) -> None:
    """Pods that failed for want of disk space stayed failed after the space was there again."""
    with opened(directory) as manager:
        manager.create_checkpoint("pod-1", Sandbox("pod-1", ports=[80]))
        disk.fill(leaving=100)

        with pytest.raises(CheckpointWriteFailed) as failure:
            manager.create_checkpoint("pod-1", Sandbox("pod-1", ports=[80, 443]))

        assert (failure.value.errno, failure.value.in_doubt) == (errno.ENOSPC, False)
        assert manager.get_checkpoint("pod-1").data.ports == [80]
        disk.free()
        manager.create_checkpoint("pod-1", Sandbox("pod-1", ports=[80, 443]))
    with opened(directory) as manager:
        assert manager.get_checkpoint("pod-1").data.ports == [80, 443]


def test_kubernetes_141206_a_write_that_failed_is_reported_and_memory_stays_as_the_disk(
    directory: Path, disk: Disk, driver: GpuDriver
) -> None:
    """The write error was only logged; memory went ahead of the disk, and a restart brought ghosts or lost devices."""
    other = pod("pod-2", other="uid-2")
    driver.allocations["uid-2"] = "gpu-1"
    with node(directory, driver) as agent:
        agent.prepare_resources(POD)
        disk.fill(leaving=50)

        with pytest.raises(CheckpointError, match="No space left"):
            agent.prepare_resources(other)

        assert "uid-2" not in agent.cache, "no ghost in memory"
        assert "uid-2" not in driver.prepared, "and no device set up that a restart would not know of"
        with pytest.raises(ClaimNotPrepared):
            agent.get_resources(other, "main")
        agent.get_resources(POD, "main")
        in_memory = {claim.uid: claim.state for claim in agent.cache}

    with node(directory, driver) as agent:
        assert {claim.uid: claim.state for claim in agent.cache} == in_memory
        disk.free()
        agent.prepare_resources(other)
        assert agent.cache.holders(DRIVER, POOL, "gpu-1") == {"uid-2"}


def test_cni_plugins_498_a_full_disk_leaves_no_empty_reservations(directory: Path, disk: Disk) -> None:
    """Creating the file succeeded, writing it failed, removing it failed: empty files until the range was used up."""
    naive = directory.parent / "naive"
    naive.mkdir()
    with opened(directory) as manager:
        disk.fill(leaving=8)
        for number in range(1, 51):
            address = f"10.0.0.{number}"
            with pytest.raises(OSError, match="No space left"):
                (naive / address).write_text("container-0123456789")
            with pytest.raises(CheckpointWriteFailed):
                manager.create_checkpoint(address, Sandbox("pod-1"), overwrite=False)

        assert len(names(naive)) == 50, "the way that failed: every address is taken, and none is used"
        assert manager.list_checkpoints() == []
        assert names(directory) == [".lock"], "a name appears only with its bytes, and no temp file stays"
        disk.free()
        manager.create_checkpoint("10.0.0.1", Sandbox("pod-1"), overwrite=False)
        assert manager.list_checkpoints() == ["10.0.0.1"]


def test_dranet_89_what_was_prepared_is_known_to_the_next_process(real_directory: Path) -> None:
    """The state was in memory only: a restart of the driver lost which pod had which device, and said nothing."""

    def prepare_and_die(saying: int) -> None:
        with node(real_directory, GpuDriver()) as agent:
            agent.prepare_resources(POD)
            os.write(saying, b"prepared")
            os.kill(os.getpid(), signal.SIGKILL)

    with Child(prepare_and_die) as child:
        assert child.read_to_end() == b"prepared"
        assert child.wait() == -signal.SIGKILL

    with node(real_directory, GpuDriver()) as agent:
        assert [claim.uid for claim in agent.cache.of_pod("pod-1")] == ["uid-1"]
        assert agent.cache.holders(DRIVER, POOL, "gpu-0") == {"uid-1"}
