"""A transaction without a journal of the owner's, with durability="atomic": it makes one of its own, and ends it."""

from __future__ import annotations

import errno
import os
import shutil
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from checkpointmanager import CheckpointManager, CheckpointWriteFailed
from checkpointmanager.testing import Call, failing, watching

from ..processes import LIMIT, until

Manager = CheckpointManager[Any]


def opened(directory: Path) -> Manager:
    return CheckpointManager(directory, durability="atomic")


def together(manager: Manager, value: int, *keys: str) -> None:
    with manager.transaction() as transaction:
        for key in keys:
            transaction.create_checkpoint(key, value)


def test_another_threads_transaction_waits_so_that_a_kill_leaves_all_or_nothing(
    real_directory: Path, tmp_path: Path
) -> None:
    committed, go_on = threading.Event(), threading.Event()

    def hang(call: Call) -> None:
        """The first transaction is committed, and one of its two files has its name."""
        if call.name == "rename" and call.about.endswith("b.json") and not committed.is_set():
            committed.set()
            assert go_on.wait(LIMIT)

    with opened(real_directory) as manager:
        together(manager, 1, "a", "b", "c", "d")
    with opened(real_directory) as manager, ThreadPoolExecutor(2) as pool, watching(real_directory, before=hang):
        first = pool.submit(together, manager, 2, "a", "b")
        assert committed.wait(LIMIT)
        second = pool.submit(together, manager, 2, "c", "d")
        try:
            with pytest.raises(TimeoutError):
                second.result(0.2)
            shutil.copytree(real_directory, tmp_path / "left", ignore=shutil.ignore_patterns(".lock"))
        finally:
            go_on.set()
        first.result(LIMIT)
        second.result(LIMIT)
    (tmp_path / "left").chmod(0o700)
    with opened(tmp_path / "left") as manager:
        assert [manager.get_checkpoint(key).data for key in "abcd"] == [2, 2, 1, 1]


def test_a_transaction_that_waited_for_one_whose_journal_stays_is_refused(real_directory: Path) -> None:
    committed, go_on = threading.Event(), threading.Event()

    def hang(call: Call) -> None:
        if call.name == "rename" and call.about.endswith("b.json"):
            committed.set()
            assert go_on.wait(LIMIT)

    with opened(real_directory) as manager, ThreadPoolExecutor(2) as pool, watching(real_directory, before=hang):
        first = pool.submit(together, manager, 1, "a", "b")
        assert committed.wait(LIMIT)
        second = pool.submit(together, manager, 1, "c", "d")
        until(lambda: len([name for name in os.listdir(real_directory) if name.startswith(".tmp-")]) == 3)
        with failing(real_directory, "unlink", errno.EIO, about=".journal", lasting=True):
            go_on.set()
            first.result(LIMIT)
            with pytest.raises(CheckpointWriteFailed, match="close and open again"):
                second.result(LIMIT)
    with opened(real_directory) as manager:
        assert manager.list_checkpoints() == ["a", "b"]


def test_if_its_journal_cannot_be_ended_nothing_is_changed_until_the_next_open(real_directory: Path) -> None:
    """A removal would not be in that journal, so the next open would bring the checkpoint back."""
    with opened(real_directory) as manager:
        with failing(real_directory, "unlink", errno.EIO, about=".journal", lasting=True):
            together(manager, 1, "a", "b")
        for change in (
            lambda: manager.remove_checkpoint("a"),
            lambda: manager.create_checkpoint("c", 1),
            lambda: together(manager, 2, "a", "b"),
        ):
            with pytest.raises(CheckpointWriteFailed, match="close and open again") as failure:
                change()
            assert (failure.value.errno, failure.value.in_doubt) == (errno.EBUSY, False)
        assert manager.get_checkpoint("a").data == 1
        assert not [name for name in os.listdir(real_directory) if name.startswith(".tmp-")]
    with opened(real_directory) as manager:
        manager.remove_checkpoint("a")
    with opened(real_directory) as manager:
        assert manager.list_checkpoints() == ["b"]
