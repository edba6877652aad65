"""Writes that could not be made, and what became of the state in memory and on disk."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from checkpointmanager import CheckpointError
from draState import ClaimNotPrepared
from tests.checkpointmanager.processes import Child

from .disk import Disk
from .gpus import DRIVER, POOL, GpuDriver, node, pod

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
