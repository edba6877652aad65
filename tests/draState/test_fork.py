"""A child forked while the parent writes can read its memory, cannot write, and never hangs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest

from checkpointmanager import CheckpointCache, CheckpointManager, FileStore, ManagerClosed
from draState import ClaimInfoCache, PodConfigStore

from ..checkpointmanager.processes import in_forked_child
from .claims import info_of
from .drivers import Doorstop
from .podconfigs import config_of
from .stores import WatchedStore


@contextmanager
def another_thread_in(write: Callable[[], object], door: Doorstop) -> Iterator[None]:
    """Inside the block, another thread has begun to write and is blocked."""
    with ThreadPoolExecutor() as pool:
        writing = pool.submit(write)
        door.wait_until_reached()
        try:
            yield
        finally:
            door.let_go()
        writing.result()


def refused(*writes: Callable[[], object]) -> None:
    for write in writes:
        with pytest.raises(ManagerClosed, match="fork"):
            write()


def test_the_cache_of_claims(directory: Path) -> None:
    door, files = Doorstop(), WatchedStore(FileStore(directory))
    cache = ClaimInfoCache(files)
    cache.put(info_of("a", ["pod-1"]))
    files.before = door

    def in_child() -> list[str]:
        refused(
            lambda: cache.put(info_of("a", ["pod-2"])),
            lambda: cache.mark("a", prepared=True),
            lambda: cache.delete("a"),
        )
        return [claim.uid for claim in cache.of_pod("pod-1")]

    with another_thread_in(lambda: cache.put(info_of("a", ["pod-3"])), door):
        assert in_forked_child(in_child) == ["a"]
    assert [claim.uid for claim in cache.of_pod("pod-3")] == ["a"]
    cache.close()


def test_the_store_of_pod_configs(directory: Path) -> None:
    door, files = Doorstop(), WatchedStore(FileStore(directory))
    store = PodConfigStore(files)
    store.set_device_config("pod-1", "eth0", config_of())
    files.before = door

    def in_child() -> list[str]:
        refused(
            lambda: store.set_device_config("pod-1", "eth1", config_of()),
            lambda: store.delete_pod("pod-1"),
            lambda: store.synchronize(list, complete=True),
        )
        store.note_activity("pod-1")
        return store.list_pods()

    with another_thread_in(lambda: store.set_device_config("pod-1", "eth2", config_of()), door):
        assert in_forked_child(in_child) == ["pod-1"]
    store.close()


def test_a_cache_whose_entry_is_just_being_swapped(directory: Path) -> None:
    door = Doorstop()
    swapping: list[bool] = []
    cache = CheckpointCache(CheckpointManager(directory), on_swap=lambda *_: door() if swapping else None)
    cache.put("a", 1)
    swapping.append(True)

    def in_child() -> object:
        refused(lambda: cache.put("b", 2))
        return cache["a"]

    with another_thread_in(lambda: cache.put("b", 1), door):
        assert in_forked_child(in_child) == 1
    cache.close()
