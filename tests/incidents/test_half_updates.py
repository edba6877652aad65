"""Changes of two things that belong together, of which only one was there after a crash."""

from __future__ import annotations

import errno
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from checkpointmanager import CheckpointError, CheckpointManager, Schema
from checkpointmanager.testing import every_fault
from draState import ClaimInfoCache, DRAError, DRAManager

from .gpus import DRIVER, GpuDriver, pod

ALL_CPUS = list(range(8))


@dataclass
class Cpus:
    free: list[int]
    assigned: dict[str, list[int]]

    def is_sound(self) -> bool:
        return sorted(sum(self.assigned.values(), self.free)) == ALL_CPUS


CPUS = Schema("Cpus", type=Cpus)


def test_kubernetes_84783_an_assignment_and_what_it_leaves_are_one_change() -> None:
    """The assignment and the default set were saved one after the other; a crash between them leaked CPUs."""

    def assign_in_two_writes(manager: CheckpointManager[Any]) -> None:
        manager.create_checkpoint("assigned", {"pod": [0, 1]})
        manager.create_checkpoint("free", ALL_CPUS[2:])

    def assign(manager: CheckpointManager[Cpus]) -> None:
        manager.update_checkpoint("cpus", lambda cpus: Cpus(cpus.free[2:], {"pod": cpus.free[:2]}))

    unsound = 0
    for death in every_fault(assign_in_two_writes, setup=_two_checkpoints, errors=()):
        with CheckpointManager(death.directory) as manager:
            unsound += not Cpus(*(manager.get_checkpoint(key).data for key in ("free", "assigned"))).is_sound()
    assert unsound, "the way that failed"

    deaths = every_fault(assign, setup=_one_checkpoint, errors=())
    for death in deaths:
        with CheckpointManager(death.directory, CPUS) as manager:
            assert manager.get_checkpoint("cpus").data.is_sound()
    assert deaths.runs > 10, "one for each system call of the write"


def _two_checkpoints(directory: Path) -> CheckpointManager[Any]:
    manager = CheckpointManager(directory)
    manager.create_checkpoint("free", ALL_CPUS)
    manager.create_checkpoint("assigned", {})
    return manager


def _one_checkpoint(directory: Path) -> CheckpointManager[Cpus]:
    manager = CheckpointManager(directory, CPUS)
    manager.create_checkpoint("cpus", Cpus(ALL_CPUS, {}))
    return manager


class Node:
    """An agent with one pod that has its GPU, and the driver that set it up."""

    def __init__(self, directory: Path) -> None:
        self.driver = GpuDriver({"uid-2": "gpu-1"})
        self.cache = ClaimInfoCache(directory)
        self.manager = DRAManager(self.cache, {DRIVER: self.driver})
        self.manager.prepare_resources(pod("pod-1", one="uid-1"))

    def close(self) -> None:
        self.cache.close()


def add_and_delete(node: Node) -> None:
    node.manager.prepare_resources(pod("pod-2", two="uid-2"))
    node.manager.unprepare_resources("pod-1")


def test_azure_container_networking_4829_memory_and_disk_agree_whatever_fails() -> None:
    """ADD and DEL went through two stores in opposite order; one failed, and file and memory parted."""
    nodes: list[Node] = []

    def started(directory: Path) -> Node:
        nodes.append(Node(directory))
        return nodes[-1]

    failures = every_fault(add_and_delete, setup=started, errors=[errno.EIO], deaths=False)
    for failure in failures:
        assert isinstance(failure.error, CheckpointError | DRAError | None)
        node = nodes[-1]
        in_memory = {claim.uid: claim.state for claim in node.cache if not claim.unknown}
        in_doubt = node.cache.report().unknown
        restarted = ClaimInfoCache(failure.directory)
        on_disk = {claim.uid: claim.state for claim in restarted if claim.uid not in in_doubt}
        restarted.close()
        assert on_disk == in_memory
        assert set(node.driver.set_up.values()) <= {*on_disk, *in_doubt}, "every device in use has its record"
    assert failures.runs > 20, "one for each system call of both"
