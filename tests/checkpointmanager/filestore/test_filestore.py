"""What a FileStore promises besides the common suite: when it is closed, refused or interrupted."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from unittest import mock

import pytest

from checkpointmanager import CheckpointError, DirectoryLocked, FileStore, ManagerClosed, Put, Reason, Replaces

CALLS: dict[str, Callable[[FileStore], object]] = {
    "keys": lambda store: store.keys(),
    "exists": lambda store: store.exists("a"),
    "read": lambda store: store.read("a"),
    "prefetch": lambda store: store.prefetch(["a"]),
    "writing": lambda store: store.writing().__enter__(),
    "commit": lambda store: store.commit([Put("a", b"new", 1, Replaces.ABSENT)]),
    "quarantine": lambda store: store.quarantine("a", Reason.EMPTY),
}


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("sharing", [False, True], ids=["owner", "sharer"])
def test_a_closed_store_refuses_every_call(directory: Path, call: str, sharing: bool) -> None:
    store = FileStore(directory, sharing=sharing)
    store.close()

    with pytest.raises(ManagerClosed, match="is closed"):
        CALLS[call](store)


@pytest.mark.parametrize("seconds", [-1, -0.001, math.nan])
def test_a_lock_timeout_that_is_no_time_is_refused_and_nothing_is_made(directory: Path, seconds: float) -> None:
    with pytest.raises(ValueError, match="lock_timeout must be a number of seconds, 0 or more"):
        FileStore(directory, lock_timeout=seconds)
    assert not directory.exists()


def test_on_a_system_without_posix_files_the_error_says_what_works(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "platform", "win32")
    with pytest.raises(CheckpointError, match="a MemoryStore works here"):
        FileStore(directory)


@pytest.mark.parametrize(("sharing", "text"), [(False, "by another manager in"), (True, "after waiting 10 s")])
def test_by_default_an_owner_does_not_wait_for_the_lock_and_a_sharer_waits_ten_seconds(
    directory: Path, sharing: bool, text: str
) -> None:
    now = [0.0]

    def pass_time(seconds: float) -> None:
        now[0] += seconds

    clock = mock.patch.object(time, "monotonic", side_effect=lambda: now[0])
    with (
        closing(FileStore(directory)) as store,
        clock,
        mock.patch.object(time, "sleep", pass_time),
        pytest.raises(DirectoryLocked, match=text),
    ):
        FileStore(directory, sharing=sharing)
    assert now == [10.0 if sharing else 0.0]
    assert store.max_bytes == 64 * 1024 * 1024
