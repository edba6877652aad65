"""Agents that wrote everything for every change, and disks that took their time."""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from unittest import mock

from checkpointmanager import CheckpointWriteFailed, MemoryStore, Put, Remove
from checkpointmanager.testing import Call, watching
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

    def commit(self, changes: Sequence[Put | Remove], *, together: bool = False) -> Mapping[str, CheckpointWriteFailed]:
        self.written += [len(change.blob) for change in changes if isinstance(change, Put)]
        return super().commit(changes, together=together)


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

        manager.create_checkpoint("item-7", Sandbox("pod"))  # the journal has room for what comes
        with mock.patch.object(os, "write", write):
            for second in range(SAVES):
                state["item-7"] = Sandbox("pod", ports=[second // 10])
                with manager.batch() as batch:  # a program that saves all it has
                    for key, data in state.items():
                        batch.create_checkpoint(key, data)

    assert size > 800_000
    assert written < size / 50, "one change of a small item in ten saves of everything, in blocks of the journal"


def test_opensandbox_1613_lookups_of_claims_wait_for_no_disk(real_directory: Path) -> None:
    """The same once more, for what a pod's start asks of the claims: a busy disk must not matter."""
    cache = ClaimInfoCache(real_directory)
    cache.put(ClaimInfo(ClaimInfoState("uid-1", "gpu", "default")))
    hanging, free = threading.Event(), threading.Event()

    def hang(call: Call) -> None:
        if call.name == "fdatasync":
            hanging.set()
            assert free.wait(LIMIT)

    writing = threading.Thread(target=cache.put, args=(ClaimInfo(ClaimInfoState("uid-2", "other", "default")),))
    with watching(real_directory, before=hang):
        writing.start()
        assert hanging.wait(LIMIT)
        assert cache.by_name("default", "gpu") is not None
        assert "uid-2" not in cache, "and memory never runs ahead of the disk"
        free.set()
        writing.join(LIMIT)
    assert "uid-2" in cache
    cache.close()
