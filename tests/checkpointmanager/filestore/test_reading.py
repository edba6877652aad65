"""Reading a file: in pieces, while it grows, and when the system refuses."""

from __future__ import annotations

import errno
import itertools
import os
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from checkpointmanager import (
    CheckpointManager,
    CheckpointNotFound,
    CheckpointUnreadable,
    DirectoryUnusable,
    FileStore,
    Reason,
)
from checkpointmanager.format import Damaged
from checkpointmanager.testing import failing

from ..processes import open_files
from .test_filestore import CALLS

pytestmark = pytest.mark.usefixtures("kit_standing_by")


@pytest.fixture
def store(real_directory: Path) -> Iterator[FileStore]:
    """Limited to ten bytes per file; the file of key `a` has ten."""
    with closing(FileStore(real_directory, max_bytes=10)) as store:
        (real_directory / "a.json").write_bytes(b"0123456789")
        yield store


@pytest.mark.parametrize("piece", [1, 3, 10])
def test_a_file_that_the_system_returns_in_pieces_is_read_whole(store: FileStore, piece: int) -> None:
    read = os.read
    with mock.patch.object(os, "read", lambda descriptor, size: read(descriptor, min(size, piece))):
        assert store.read("a") == b"0123456789"


@contextmanager
def growing(file: Path, tail: bytes) -> Iterator[None]:
    """The file grows between the check of its size and the first read."""
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
        store.prefetch(["a", "a"])
        assert open_files() == before
    assert len(refused) == 2


@pytest.mark.parametrize(
    ("call", "name", "expected"), [("exists", "stat", DirectoryUnusable), ("read", "open", Damaged)]
)
def test_the_error_of_the_system_is_named_as_the_cause(
    real_directory: Path, call: str, name: str, expected: type[Exception]
) -> None:
    failure = OSError(errno.EIO, os.strerror(errno.EIO))
    with closing(FileStore(real_directory)) as store:
        (real_directory / "a.json").write_bytes(b"1")
        with failing(real_directory, name, failure, lasting=True), pytest.raises(expected) as caught:
            CALLS[call](store)
    assert caught.value.__cause__ is failure


ERRORS = [errno.EIO, errno.ENOSPC, errno.EINTR, errno.ENOENT, errno.EACCES, errno.EMFILE]


@pytest.fixture
def manager(real_directory: Path) -> Iterator[CheckpointManager[int]]:
    with CheckpointManager[int](real_directory) as manager:
        manager.create_checkpoint("a", 1)
        yield manager


@pytest.mark.parametrize("number", ERRORS, ids=errno.errorcode.get)
def test_a_read_that_fails_is_reported_and_forgotten(manager: CheckpointManager[int], number: int) -> None:
    """A single failure goes unnoticed: readers look twice. A lasting one is `unreadable`. ENOENT is an answer."""
    for nth in itertools.count(1):
        with failing(manager.path, failure=number, nth=nth) as injector, suppress(CheckpointNotFound):
            assert manager.get_checkpoint("a").data == 1
        if not injector.failed:
            break
    assert nth > 4
    for nth in range(1, 4) if number != errno.ENOENT else ():
        broken = failing(manager.path, failure=number, nth=nth, lasting=True)
        with broken, pytest.raises(CheckpointUnreadable) as caught:
            manager.get_checkpoint("a")
        assert caught.value.errno == number
    assert manager.get_checkpoint("a").data == 1


QUESTIONS: dict[str, Callable[[CheckpointManager[Any]], object]] = {
    "contains": lambda manager: "a" in manager,
    "list": lambda manager: manager.list_checkpoints(),
    "len": len,
    "load": lambda manager: manager.load(),
    "verify": lambda manager: manager.verify(),
}


@pytest.mark.parametrize("number", ERRORS, ids=errno.errorcode.get)
def test_a_question_that_cannot_be_answered_is_an_error_and_not_a_no(
    manager: CheckpointManager[int], number: int
) -> None:
    for name, question in QUESTIONS.items():
        with failing(manager.path, failure=number):
            if name == "contains" and number == errno.ENOENT:
                assert question(manager) is False
                continue
            with pytest.raises(DirectoryUnusable, match=os.strerror(number)) as caught:
                question(manager)
            assert (caught.value.errno, caught.value.path) == (number, manager.path)
