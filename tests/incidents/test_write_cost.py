"""Agents that wrote everything for every change, and disks that took their time."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from unittest import mock

from checkpointmanager import CheckpointWriteFailed, Event, EventKind, MemoryStore, Put
from draState import ClaimInfo, ClaimInfoCache, ClaimInfoState, DRAManager
from tests.checkpointmanager.processes import LIMIT
from tests.long import times

from .gpus import DRIVER, GpuDriver, pod
from .sandboxes import Sandbox, opened

SAVES = times(30, 100)


class CountingStore(MemoryStore):
    """Records what it had to write."""

    def __init__(self) -> None:
        super().__init__()
        self.written: list[int] = []  # bytes of each file

    def commit(self, puts: Sequence[Put], removals: Sequence[str] = ()) -> dict[str, CheckpointWriteFailed]:
        self.written += [len(put.blob) for put in puts]
        return super().commit(puts, removals)

    def transact(self, puts: Sequence[Put], removals: Mapping[str, int]) -> None:
        self.written += [len(put.blob) for put in puts]
        super().transact(puts, removals)


def test_kubernetes_128188_a_container_more_is_not_a_write_of_everything() -> None:
    """The whole state file was written once for each container of each pod, whether anything had changed or not."""
    store = CountingStore()
    cache = ClaimInfoCache(store)
    cache.put(*(ClaimInfo(ClaimInfoState(f"uid-{number}", f"gpu-{number}", "default")) for number in range(200)))
    manager = DRAManager(cache, {DRIVER: GpuDriver()})
    everything = sum(store.written)
    store.written.clear()

    the_pod = pod("pod-1", mine="uid-mine")
    for _ in range(5):  # as for five containers
        manager.prepare_resources(the_pod)
        manager.get_resources(the_pod, "main")

    assert len(store.written) == 2, "the intent and the result, of one claim"
    assert sum(store.written) < everything / 50


def test_navide_11_a_big_state_costs_what_changes_in_it(real_directory: Path) -> None:
    """A file of 8.3 MB was written anew two and a half times a second: 2.1 GB in 103 seconds."""
    state = {f"item-{number}": Sandbox("pod", ports=list(range(2000))) for number in range(100)}
    written = 0
    real = os.write

    def write(descriptor: int, blob: bytes) -> int:
        nonlocal written
        written += len(blob)
        return real(descriptor, blob)

    with opened(real_directory) as manager:
        with manager.batch() as batch:
            for key, data in state.items():
                batch.create_checkpoint(key, data)
        size = sum(path.stat().st_size for path in real_directory.glob("*.json"))

        with mock.patch.object(os, "write", write):
            for second in range(SAVES):
                state["item-7"] = Sandbox("pod", ports=[second // 10])
                with manager.batch() as batch:  # a program that saves all it has
                    for key, data in state.items():
                        batch.create_checkpoint(key, data)

    assert size > 800_000
    assert written < size / 100, "one change of a small item in ten saves of everything"


def test_opensandbox_1613_while_one_sync_hangs_the_others_go_on(real_directory: Path, events: list[Event]) -> None:
    """One fsync on the start path blocked for 6.26 seconds, and with it everything that waited behind it."""
    hanging, free = threading.Event(), threading.Event()
    real = os.fsync

    def fsync(descriptor: int) -> None:
        if threading.current_thread().name == "slow":
            hanging.set()
            assert free.wait(LIMIT)
        real(descriptor)

    with opened(real_directory, on_event=events.append) as manager, mock.patch.object(os, "fsync", fsync):
        manager.create_checkpoint("slow", Sandbox("before"))
        slow = threading.Thread(target=manager.create_checkpoint, name="slow", args=("slow", Sandbox("after")))
        slow.start()
        assert hanging.wait(LIMIT)

        assert manager.get_checkpoint("slow").data == Sandbox("before"), "readers do not wait"
        manager.create_checkpoint("other", Sandbox("pod"))  # nor do writers of other keys
        assert manager.get_checkpoint("other").data == Sandbox("pod")

        free.set()
        slow.join(LIMIT)
        assert manager.get_checkpoint("slow").data == Sandbox("after")


def test_opensandbox_1613_a_slow_sync_is_reported(real_directory: Path, events: list[Event]) -> None:
    """The same fsync of 6.26 seconds: the operator of such a disk wants to know."""
    clock = time.perf_counter
    late = 0.0
    real = os.fsync

    def fsync(descriptor: int) -> None:
        nonlocal late
        real(descriptor)
        late += 6.26

    def now() -> float:
        return clock() + late

    with opened(real_directory, on_event=events.append) as manager:
        events.clear()
        with mock.patch.object(os, "fsync", fsync), mock.patch.object(time, "perf_counter", now):
            manager.create_checkpoint("state", Sandbox("pod"))

    assert [event.kind for event in events] == [EventKind.SLOW_SYNC]
    assert 6.2 < events[0].seconds < 7
    assert "6.3 s" in events[0].detail


def test_opensandbox_1613_lookups_of_claims_wait_for_no_disk(real_directory: Path) -> None:
    """The same once more, for what a pod's start asks of the claims: a busy disk must not matter."""
    cache = ClaimInfoCache(real_directory)
    cache.put(ClaimInfo(ClaimInfoState("uid-1", "gpu", "default")))
    hanging, free = threading.Event(), threading.Event()
    real = os.fsync

    def fsync(descriptor: int) -> None:
        hanging.set()
        assert free.wait(LIMIT)
        real(descriptor)

    writing = threading.Thread(target=cache.put, args=(ClaimInfo(ClaimInfoState("uid-2", "other", "default")),))
    with mock.patch.object(os, "fsync", fsync):
        writing.start()
        assert hanging.wait(LIMIT)
        assert cache.by_name("default", "gpu") is not None
        assert "uid-2" not in cache, "and memory never runs ahead of the disk"
        free.set()
        writing.join(LIMIT)
    assert "uid-2" in cache
    cache.close()
