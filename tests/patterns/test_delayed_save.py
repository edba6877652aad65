"""A document that changes often and is written a moment later, as in Home Assistant."""

from __future__ import annotations

import asyncio
import errno
from pathlib import Path
from types import TracebackType
from typing import Any

import pytest

from checkpointmanager import CheckpointManager, CheckpointWriteFailed, CorruptCheckpoint, Schema
from checkpointmanager.aio import KeyedThreads
from checkpointmanager.testing import damage, failing

KEY = "core.areas"


def with_labels(data: Any) -> Any:
    return {**data, "labels": []}


AREAS: Schema[Any] = Schema("Areas", version=2, migrations={1: with_labels})
LATER = 3600  # seconds, which no test waits


class DelayedStore:
    """One document. Many changes make one write, after `delay` seconds or at the end."""

    def __init__(self, directory: Path, delay: float) -> None:
        self._manager = CheckpointManager(directory, AREAS)
        self._threads = KeyedThreads()
        self._delay = delay
        self._unsaved: Any = None
        self._saving: asyncio.Task[None] | None = None

    async def load(self) -> Any:
        """The document, or None if there has never been one. Damage raises: it is not a first start."""
        checkpoint = await self._threads.call(lambda: self._manager.get_checkpoint(KEY, default=None))
        return checkpoint and checkpoint.data

    def save_later(self, data: Any) -> asyncio.Task[None]:
        self._unsaved = data
        if self._saving is None:
            self._saving = asyncio.create_task(self._save_after_delay())
        return self._saving

    async def flush(self) -> None:
        data = self._unsaved
        if data is not None:
            await self._threads.run([KEY], lambda: self._manager.create_checkpoint(KEY, data))
            if self._unsaved is data:  # nothing newer came in the meantime
                self._unsaved = None

    async def _save_after_delay(self) -> None:
        await asyncio.sleep(self._delay)
        self._saving = None  # whatever changes from here on needs another write
        await self.flush()

    async def __aenter__(self) -> DelayedStore:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._saving is not None:
            self._saving.cancel()
        await self.flush()
        await self._threads.close(self._manager.close)


def test_many_changes_are_one_write_at_the_end(tmp_path: Path) -> None:
    async def main() -> None:
        async with DelayedStore(tmp_path, LATER) as store:
            assert await store.load() is None
            for number in range(100):
                store.save_later({"areas": number, "labels": []})

    asyncio.run(main())
    with CheckpointManager(tmp_path, AREAS) as manager:
        checkpoint = manager.get_checkpoint(KEY)
    assert (checkpoint.data["areas"], checkpoint.generation) == (99, 1)


def test_a_change_is_written_when_its_time_has_come(tmp_path: Path) -> None:
    async def main() -> Any:
        async with DelayedStore(tmp_path, delay=0) as store:
            await store.save_later({"areas": 1, "labels": []})
            return await store.load()

    assert asyncio.run(main()) == {"areas": 1, "labels": []}


def test_what_a_full_disk_refused_is_written_at_the_end(tmp_path: Path) -> None:
    async def main() -> Any:
        async with DelayedStore(tmp_path, delay=0) as store:
            with failing(tmp_path, "write", errno.ENOSPC), pytest.raises(CheckpointWriteFailed):
                await store.save_later({"areas": 1, "labels": []})
        async with DelayedStore(tmp_path, LATER) as store:
            return await store.load()

    assert asyncio.run(main()) == {"areas": 1, "labels": []}


def test_a_document_of_the_version_before_is_migrated(tmp_path: Path) -> None:
    with CheckpointManager(tmp_path, Schema("Areas", version=1)) as manager:
        manager.create_checkpoint(KEY, {"areas": 7})

    async def main() -> Any:
        async with DelayedStore(tmp_path, LATER) as store:
            return await store.load()

    assert asyncio.run(main()) == {"areas": 7, "labels": []}


def test_a_damaged_document_is_not_a_first_start(tmp_path: Path) -> None:
    with CheckpointManager(tmp_path, AREAS) as manager:
        manager.create_checkpoint(KEY, {"areas": 7, "labels": []})
    damage.empty(tmp_path, KEY)

    async def main() -> None:
        async with DelayedStore(tmp_path, LATER) as store:
            await store.load()

    with pytest.raises(CorruptCheckpoint):
        asyncio.run(main())
