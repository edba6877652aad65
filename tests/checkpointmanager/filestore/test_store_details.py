"""What a FileStore promises beside the common suite: when it is closed, refused or interrupted."""

from __future__ import annotations

import errno
import math
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from unittest import mock

import pytest

from checkpointmanager import (
    CheckpointError,
    Current,
    DirectoryUnusable,
    Event,
    EventKind,
    FileStore,
    ManagerClosed,
    Put,
    Reason,
)
from checkpointmanager._filestore.ownership import Ownership
from checkpointmanager._format.reason import Damaged

CALLS: dict[str, Callable[[FileStore], object]] = {
    "keys": lambda store: store.keys(),
    "exists": lambda store: store.exists("a"),
    "read": lambda store: store.read("a"),
    "expect": lambda store: store.expect(["a"]),
    "writing": lambda store: store.writing().__enter__(),
    "commit": lambda store: store.commit([Put("a", b"new", Current.ABSENT)]),
    "quarantine": lambda store: store.quarantine("a", Reason.EMPTY),
}


def open_files() -> list[str]:
    return sorted(os.listdir("/proc/self/fd"))


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("sharing", [False, True], ids=["owner", "sharer"])
def test_a_closed_store_refuses_every_call(directory: Path, call: str, sharing: bool) -> None:
    store = FileStore(directory, sharing=sharing)
    store.close()

    with pytest.raises(ManagerClosed, match="is closed"):
        CALLS[call](store)


@pytest.mark.parametrize("seconds", [-1, -0.001, math.nan])
def test_a_lock_timeout_that_is_no_time_is_refused_and_nothing_made(directory: Path, seconds: float) -> None:
    with pytest.raises(ValueError, match="lock_timeout is a number of seconds from 0"):
        FileStore(directory, lock_timeout=seconds)
    assert not directory.exists()


def test_a_system_without_posix_files_is_told_what_works(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "win32")
    with pytest.raises(CheckpointError, match="a MemoryStore works here"):
        FileStore(directory)


@pytest.mark.parametrize(("name", "sort"), [(".tmp-1", "1 unfinished and 0"), (".previous-gone", "0 unfinished and 1")])
def test_either_sort_of_stale_file_is_swept_and_told_alone(directory: Path, name: str, sort: str) -> None:
    events: list[Event] = []
    directory.mkdir(mode=0o700)
    (directory / name).write_bytes(b"of a dead writer")

    FileStore(directory, emit=events.append).close()

    (event,) = events
    assert (event.kind, event.path) == (EventKind.STALE_FILES, str(directory))
    assert f"removed {sort} orphaned" in event.detail
    assert not (directory / name).exists()


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit])
def test_an_interrupted_opening_leaves_neither_lock_nor_descriptor(
    real_directory: Path, error: type[BaseException]
) -> None:
    FileStore(real_directory).close()
    before = open_files()

    with mock.patch.object(FileStore, "_take_over", side_effect=error), pytest.raises(error) as caught:
        FileStore(real_directory)

    assert open_files() == before
    FileStore(real_directory).close()
    assert caught.type is error  # and its traceback, which still holds the store, is no hindrance


def test_a_hint_that_the_kernel_refuses_leaves_no_descriptor_open(
    real_directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    refused: list[int] = []

    def fadvise(descriptor: int, *_: int) -> None:
        refused.append(descriptor)
        raise OSError(errno.ESPIPE, "no hints here")

    with closing(FileStore(real_directory)) as store:
        (real_directory / "a.json").write_bytes(b"1")
        monkeypatch.setattr(os, "posix_fadvise", fadvise)
        before = open_files()
        store.expect(["a", "a"])
        assert open_files() == before
    assert len(refused) == 2


@pytest.mark.parametrize(("call", "expected"), [("exists", DirectoryUnusable), ("read", Damaged)])
def test_the_error_of_the_system_is_named_as_the_cause(
    real_directory: Path, call: str, expected: type[Exception]
) -> None:
    failure = OSError(errno.EIO, os.strerror(errno.EIO))
    with (
        closing(FileStore(real_directory)) as store,
        mock.patch.object(store._directory, "stat", side_effect=failure),
        mock.patch.object(store._directory, "open", side_effect=failure),
        pytest.raises(expected) as caught,
    ):
        CALLS[call](store)
    assert caught.value.__cause__ is failure


def test_only_a_commit_that_synced_is_told_as_a_sync(real_directory: Path) -> None:
    told: list[str] = []
    with closing(FileStore(real_directory, on_sync=lambda path, _: told.append(path))) as store, store.writing():
        store.commit([])
        assert told == []
        store.commit([Put("a", b"1", Current.ABSENT)])
        assert told == [str(real_directory)]


@pytest.fixture
def store(real_directory: Path) -> Iterator[FileStore]:
    """Of ten bytes a file at most; in the file of key `a` there are ten."""
    with closing(FileStore(real_directory, max_bytes=10)) as store:
        (real_directory / "a.json").write_bytes(b"0123456789")
        yield store


@pytest.mark.parametrize("piece", [1, 3, 10])
def test_a_file_that_the_system_hands_out_in_pieces_is_read_whole(store: FileStore, piece: int) -> None:
    read = os.read
    with mock.patch.object(os, "read", lambda descriptor, size: read(descriptor, min(size, piece))):
        assert store.read("a") == b"0123456789"


@contextmanager
def growing(file: Path, tail: bytes) -> Iterator[None]:
    """The file grows between the look at its size and the first read."""
    fstat = os.fstat

    def grow(descriptor: int) -> os.stat_result:
        status = fstat(descriptor)
        with open(file, "ab") as more:
            more.write(tail)
        return status

    with mock.patch.object(os, "fstat", grow):
        yield


@pytest.mark.parametrize("tail", [b"5", b"56789"])
def test_a_file_that_grows_while_it_is_read_is_read_to_its_new_end(
    store: FileStore, real_directory: Path, tail: bytes
) -> None:
    (real_directory / "a.json").write_bytes(b"01234")
    with growing(real_directory / "a.json", tail):
        assert store.read("a") == b"01234" + tail


def test_a_file_that_grows_over_the_limit_while_it_is_read_is_too_large(store: FileStore, real_directory: Path) -> None:
    with growing(real_directory / "a.json", b"abcdef"), pytest.raises(Damaged, match="over the limit of") as caught:
        store.read("a")
    assert caught.value.reason is Reason.TOO_LARGE


def test_a_file_that_is_leased_for_a_moment_is_read_when_that_has_passed(store: FileStore) -> None:
    steps: list[str] = []
    opening = store._directory.open

    def leased(name: str) -> int:
        if "waited" not in steps:
            steps.append("refused")
            raise BlockingIOError(errno.EAGAIN, "leased")
        return opening(name)

    with (
        mock.patch.object(store._directory, "open", leased),
        mock.patch("time.sleep", side_effect=lambda _: steps.append("waited")),
    ):
        assert store.read("a") == b"0123456789"
    assert steps == ["refused", "waited"]


@pytest.mark.parametrize(("sharing", "seconds"), [(False, 0.0), (True, 10.0)], ids=["owner", "sharer"])
def test_without_options_an_owner_waits_for_nobody_and_a_sharer_ten_seconds(
    directory: Path, sharing: bool, seconds: float
) -> None:
    with mock.patch("checkpointmanager._filestore.Ownership", wraps=Ownership) as ownership:
        store = FileStore(directory, sharing=sharing)
    store.close()

    assert ownership.call_args.kwargs["timeout"] == seconds
    assert store.max_bytes == 64 * 1024 * 1024
