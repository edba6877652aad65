"""The options of a directory on a store without one: those that make sense are honoured, the rest are accepted."""

from __future__ import annotations

import asyncio
import errno
import threading
from typing import Any

import pytest

from checkpointmanager import (
    CheckpointManager,
    CheckpointWriteFailed,
    CorruptCheckpoint,
    MemoryStore,
    Reason,
    Store,
    UnstorableValue,
)
from checkpointmanager._storeview import StoreView
from checkpointmanager.aio import AsyncCheckpointManager
from checkpointmanager.testing import StoreConformance, damage
from draState import ClaimInfoCache, PodConfigStore


class TestView(StoreConformance):
    """With a limit: no other view claims to be exclusive."""

    @pytest.fixture
    def store(self) -> Store:
        return StoreView(MemoryStore(), sharing=False, read_only=False, max_bytes=1 << 20)


def test_what_only_a_directory_has_is_accepted_and_ignored() -> None:
    store = MemoryStore()
    options: dict[str, Any] = {"owner": "agent", "lock_timeout": 3, "allow_insecure": True, "durability": "atomic"}
    manager = CheckpointManager(store, **options, sharing=False, read_only=False)
    manager.create_checkpoint("a", 1)
    assert manager._store is store, "nothing to limit, so nothing in between"


def test_the_claims_and_pod_configs_of_draState_take_it_with_the_same_options() -> None:
    assert len(ClaimInfoCache(MemoryStore(), owner="agent", lock_timeout=1)) == 0
    with PodConfigStore(MemoryStore(), owner="agent", lock_timeout=1) as pods:
        assert pods.problems == {}


def test_so_does_the_manager_for_asyncio() -> None:
    async def write() -> int:
        async with AsyncCheckpointManager(MemoryStore(), owner="agent", max_bytes=1000) as manager:
            return (await manager.create_checkpoint("a", 1)).generation

    assert asyncio.run(write()) == 1


def test_read_only_refuses_every_change_and_reads() -> None:
    store = MemoryStore()
    CheckpointManager(store).create_checkpoint("a", 1)
    reader = CheckpointManager(store, read_only=True)
    changes = (
        lambda: reader.create_checkpoint("a", 2),
        lambda: reader.update_checkpoint("a", lambda _: 2),
        lambda: reader.remove_checkpoint("a"),
        lambda: reader.recover_checkpoint("a"),
    )
    for change in changes:
        with pytest.raises(CheckpointWriteFailed) as caught:
            change()
        assert (caught.value.errno, caught.value.in_doubt) == (errno.EROFS, False)
    assert reader.get_checkpoint("a").data == 1
    CheckpointManager(store).create_checkpoint("a", 3)
    assert reader.get_checkpoint("a").data == 3


def test_max_bytes_limits_this_manager_and_no_other() -> None:
    store = MemoryStore()
    CheckpointManager(store).create_checkpoint("large", "x" * 1000)
    limited = CheckpointManager(store, max_bytes=500)
    with pytest.raises(UnstorableValue, match="over the limit of 500"):
        limited.create_checkpoint("a", "x" * 1000)
    with pytest.raises(CorruptCheckpoint) as caught:
        limited.get_checkpoint("large")
    assert caught.value.reason is Reason.TOO_LARGE
    assert CheckpointManager(store).get_checkpoint("large").data == "x" * 1000


def test_a_limit_can_only_be_lowered() -> None:
    store = MemoryStore()
    store.max_bytes = 500
    with pytest.raises(UnstorableValue, match="over the limit of 500"):
        CheckpointManager(store, max_bytes=1 << 20).create_checkpoint("a", "x" * 1000)


def test_sharing_means_that_nothing_is_remembered() -> None:
    store = MemoryStore()
    one, other = CheckpointManager(store, sharing=True), CheckpointManager(store, sharing=True)
    assert one.create_checkpoint("a", 1).generation == 1
    assert other.create_checkpoint("a", 2).generation == 2
    third = one.create_checkpoint("a", 1)
    assert (third.generation, third.unchanged) == (3, False)


def test_managers_that_share_take_turns_so_that_no_update_is_lost() -> None:
    store = MemoryStore()
    one, other = CheckpointManager(store, sharing=True), CheckpointManager(store, sharing=True)
    one.create_checkpoint("a", 0)
    ended = threading.Event()

    def count_as_well() -> None:
        other.update_checkpoint("a", lambda number: number + 1)
        ended.set()

    rival = threading.Thread(target=count_as_well)

    def count(number: int) -> int:
        rival.start()
        assert not ended.wait(0.2), "the other update came between the read and the write"
        return number + 1

    one.update_checkpoint("a", count)
    rival.join()
    assert one.get_checkpoint("a").data == 2


def test_the_kit_damages_what_is_behind_a_view() -> None:
    manager = CheckpointManager(MemoryStore(), max_bytes=1000)
    manager.create_checkpoint("a", {"some": "data", "more": "data"})
    damage.flip_bit(manager, "a").expect(manager)
