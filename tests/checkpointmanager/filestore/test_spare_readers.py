"""A reader with a checkpoint open reads it to the end unchanged; a reader that opens one never sees damage."""

from __future__ import annotations

import fcntl
import mmap
import os
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from checkpointmanager import CheckpointManager
from checkpointmanager._filestore import spares, system
from checkpointmanager._filestore.spares import Spares

from ..processes import LIMIT, Child, run_together
from ..spares import Manager, previous_of, with_spares

READS = 2000  # per reader


@pytest.fixture
def directory(spare_directory: Path) -> Path:
    return spare_directory


@pytest.fixture
def manager(directory: Path) -> Iterator[Manager]:
    with with_spares(directory, 3) as manager:
        for number in range(3):
            manager.create_checkpoint("a", value_of(number))
        yield manager


def value_of(number: int) -> list[Any]:
    """Of several blocks and any length; a mixture of two values shows in the value itself, without a checksum."""
    return [number] * (1000 + number * 7919 % 3000)


@contextmanager
def descriptor_of(path: Path) -> Iterator[Callable[[], bytes]]:
    with path.open("rb", buffering=0) as file:

        def read() -> bytes:
            file.seek(0)
            return file.read()

        yield read


@contextmanager
def mapping_of(path: Path) -> Iterator[Callable[[], bytes]]:
    """A mapped file stays open although its descriptor is closed."""
    with path.open("rb") as file:
        mapping = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
    with mapping:
        yield lambda: bytes(mapping)


@contextmanager
def other_process_with(path: Path) -> Iterator[Callable[[], bytes]]:
    hear, say = os.pipe()

    def serve(answers: int) -> None:
        file = os.open(path, os.O_RDONLY)
        while os.read(hear, 1):
            os.write(answers, os.pread(file, 1 << 20, 0) + b"END")

    with Child(serve) as child:

        def read() -> bytes:
            os.write(say, b"?")
            received = b""
            while not received.endswith(b"END"):
                piece = child.read(LIMIT)
                assert piece, "the reader has ended"
                received += piece
            return received.removesuffix(b"END")

        try:
            yield read
        finally:
            os.close(say)
            os.close(hear)


each_reader = pytest.mark.parametrize("reader", [descriptor_of, mapping_of, other_process_with])
Open = Callable[[Path], Any]


def is_cut(manager: Manager, directory: Path, reader: Open, updates: int) -> bool:
    """Open the current checkpoint, update it that often, and say whether the reader gets other bytes than before."""
    with reader(directory / "a.json") as read:
        before = read()
        for number in range(updates):
            manager.create_checkpoint("a", value_of(100 + number))
        return bool(read() != before)


@each_reader
def test_what_is_open_is_never_overwritten(manager: Manager, directory: Path, reader: Open) -> None:
    assert not is_cut(manager, directory, reader, updates=20)


@each_reader
def test_without_a_look_at_the_lease_it_would_be(manager: Manager, directory: Path, reader: Open) -> None:
    with mock.patch.object(Spares, "_is_unread", return_value=True):
        assert is_cut(manager, directory, reader, updates=20)


@each_reader
def test_another_spare_is_taken_and_what_was_read_is_one_again_afterwards(
    manager: Manager, directory: Path, reader: Open
) -> None:
    file = (directory / "a.json").stat().st_ino
    with reader(directory / "a.json") as read:
        read()
        for number in range(30):
            manager.create_checkpoint("a", number)
            assert (directory / "a.json").stat().st_ino != file
    used: set[int] = set()
    for number in range(30):
        manager.create_checkpoint("a", number)
        used.add((directory / "a.json").stat().st_ino)
    assert file in used
    assert previous_of(manager) == 28


def test_a_reader_of_the_previous_generation_is_not_cut_either(manager: Manager, directory: Path) -> None:
    with descriptor_of(directory / ".previous-a") as read:
        before = read()
        for number in range(20):
            manager.create_checkpoint("a", number)
        assert read() == before


def opened_by_another_while_it_is_leased(directory: Path, *, harmless_signal: bool) -> Any:
    """The kernel sends the holder of a lease a signal when another descriptor is opened on the file."""
    real = system.fcntl_at_once
    opened: list[OSError] = []

    def lease(descriptor: int, command: int, argument: int = 0) -> Any:
        if command == fcntl.F_SETSIG and not harmless_signal:
            return 0
        answer = real(descriptor, command, argument)
        if (command, argument) == (fcntl.F_SETLEASE, fcntl.F_WRLCK):
            try:
                os.close(os.open(f"/proc/self/fd/{descriptor}", os.O_RDONLY | os.O_NONBLOCK))
            except BlockingIOError as error:
                opened.append(error)
        return answer

    def write(say: int) -> None:
        with CheckpointManager(directory) as manager, mock.patch.object(spares, "fcntl_at_once", lease):
            for number in range(20):
                manager.create_checkpoint("a", number)
        os.write(say, str(len(opened)).encode())

    return write


def test_opening_the_file_at_that_moment_does_not_kill_the_writer(directory: Path) -> None:
    with Child(opened_by_another_while_it_is_leased(directory, harmless_signal=True)) as writer:
        assert int(writer.read_to_end()) > 10, "most updates go over spares"
        assert writer.wait() == 0


def test_with_the_usual_signal_it_would(directory: Path) -> None:
    with Child(opened_by_another_while_it_is_leased(directory, harmless_signal=False)) as writer:
        assert writer.read_to_end() == b""
        assert writer.wait() == -signal.SIGIO


def read_often(manager: Manager) -> None:
    newest = 0
    for _ in range(READS):
        checkpoint = manager.get_checkpoint("a")
        assert checkpoint.data == value_of(checkpoint.data[0])
        assert checkpoint.generation >= newest, "it goes back"
        newest = checkpoint.generation


def test_no_reader_that_races_with_the_writer_ever_sees_damage(manager: Manager, directory: Path) -> None:
    """In threads and in another process, thousands of times, also of the previous generation."""
    ended, before = threading.Event(), manager.get_checkpoint("a").generation

    def read_in_another_process(say: int) -> None:
        with CheckpointManager(directory, read_only=True) as reader:
            read_often(reader)
        os.write(say, b"fine")

    def read_previous() -> None:
        while not ended.is_set():
            previous = manager.previous_checkpoint("a")
            assert previous is None or previous.data == value_of(previous.data[0])

    def write() -> None:
        number = 3
        while not ended.is_set():
            manager.create_checkpoint("a", value_of(number))
            number += 1

    def read() -> None:
        try:
            with ThreadPoolExecutor(2) as pool:
                list(pool.map(read_often, [manager, manager]))
            assert other.read_to_end() == b"fine"
        finally:
            ended.set()

    with Child(read_in_another_process) as other:
        run_together(write, read, read_previous)
    assert manager.get_checkpoint("a").generation > before + 3, "the writer hardly ran beside the readers"
