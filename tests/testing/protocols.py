"""Ways to keep one value in one file, some right and some wrong, as real programs do it.

Each starts with the value OLD, durable under NAME, and acknowledges NEW when it believes that NEW is durable.
"""

from __future__ import annotations

import ctypes
import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from checkpointmanager.testing import acknowledge, failing

NAME = "value"
PREVIOUS = ".previous"
SPARE = ".spare"
OLDEST, OLD, NEW, NEWEST = (f"{word:>8}\n".encode() * 4 for word in ("oldest", "old", "new", "newest"))
GONE = b""
RENAME_EXCHANGE = 2


def setup(directory: Path) -> Path:
    for name, value in ((NAME, OLD), (PREVIOUS, OLDEST), (SPARE, OLDEST)):
        (directory / name).write_bytes(value)
    return directory


def exchange(directory: int, old: str, new: str) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.renameat2(directory, old.encode(), directory, new.encode(), RENAME_EXCHANGE):
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


@contextmanager
def opened(path: Path, flags: int = os.O_RDONLY) -> Iterator[int]:
    descriptor = os.open(path, flags, 0o600)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def sync(directory: Path) -> None:
    with opened(directory) as descriptor:
        os.fsync(descriptor)


def write(path: Path, value: bytes, *, synced: bool = True, flags: int = os.O_CREAT) -> None:
    with opened(path, os.O_WRONLY | flags) as descriptor:
        os.write(descriptor, value)
        if synced:
            os.fsync(descriptor)


# Right.


def classic(directory: Path) -> None:
    write(directory / "temp", NEW)
    os.rename(directory / "temp", directory / NAME)
    sync(directory)
    acknowledge(NEW)


def classic_with_pathlib(directory: Path) -> None:
    with (directory / "temp").open("wb") as file:
        file.write(NEW)
        file.flush()
        os.fsync(file.fileno())
    (directory / "temp").replace(directory / NAME)
    sync(directory)
    acknowledge(NEW)


def recycled(directory: Path) -> None:
    """The spare file is overwritten entirely and changes places with the value; twice."""
    for value in (NEW, NEWEST):
        write(directory / SPARE, value, flags=0)
        with opened(directory) as descriptor:
            exchange(descriptor, SPARE, NAME)
        sync(directory)
        acknowledge(value)


def removed(directory: Path) -> None:
    """First the file that would come back, then the value."""
    for name in (PREVIOUS, NAME):
        (directory / name).unlink()
        sync(directory)
    acknowledge(GONE)


def written_anew_after_a_failed_sync(directory: Path) -> None:
    with opened(directory / "first", os.O_WRONLY | os.O_CREAT) as descriptor:
        os.write(descriptor, NEW)
        with suppress(OSError), failing(directory, "fsync", errno.EIO):
            os.fsync(descriptor)
    classic(directory)


# Wrong.


def without_file_sync(directory: Path) -> None:
    write(directory / "temp", NEW, synced=False)
    os.rename(directory / "temp", directory / NAME)
    sync(directory)
    acknowledge(NEW)


def renamed_before_sync(directory: Path) -> None:
    with opened(directory / "temp", os.O_WRONLY | os.O_CREAT) as descriptor:
        os.write(descriptor, NEW)
        os.rename(directory / "temp", directory / NAME)
        os.fsync(descriptor)
    sync(directory)
    acknowledge(NEW)


def without_directory_sync(directory: Path) -> None:
    write(directory / "temp", NEW)
    os.rename(directory / "temp", directory / NAME)
    acknowledge(NEW)


def overwritten_in_place(directory: Path) -> None:
    write(directory / NAME, NEW, flags=0)
    acknowledge(NEW)


def truncated_and_written(directory: Path) -> None:
    (directory / NAME).write_bytes(NEW)
    with opened(directory / NAME) as descriptor:
        os.fsync(descriptor)
    acknowledge(NEW)


def deleted_before_rename(directory: Path) -> None:
    write(directory / "temp", NEW)
    os.unlink(directory / NAME)
    os.rename(directory / "temp", directory / NAME)
    sync(directory)
    acknowledge(NEW)


def removed_in_the_wrong_order(directory: Path) -> None:
    """A reader that finds no value takes the previous one."""
    (directory / NAME).unlink()
    (directory / PREVIOUS).unlink()
    sync(directory)
    acknowledge(GONE)


def recycled_too_early(directory: Path) -> None:
    """The second update overwrites the file that the disk may still name the value: the exchange is not durable."""
    for value in (NEW, NEWEST):
        write(directory / SPARE, value, flags=0)
        with opened(directory) as descriptor:
            exchange(descriptor, SPARE, NAME)
    sync(directory)
    acknowledge(NEWEST)


def synced_again_after_a_failure(directory: Path) -> None:
    with opened(directory / "temp", os.O_WRONLY | os.O_CREAT) as descriptor:
        os.write(descriptor, NEW)
        with suppress(OSError), failing(directory, "fsync", errno.EIO):
            os.fsync(descriptor)
        os.fsync(descriptor)  # succeeds, and proves nothing
    os.rename(directory / "temp", directory / NAME)
    sync(directory)
    acknowledge(NEW)


def in_a_directory_that_is_not_synced(directory: Path) -> None:
    """The new directory is synced, its own name is not."""
    (directory / "new").mkdir()
    write(directory / "new" / NAME, NEW)
    sync(directory / "new")
    acknowledge(NEW)


RIGHT = (classic, classic_with_pathlib, recycled, removed, written_anew_after_a_failed_sync)
WRONG = (
    *(without_file_sync, renamed_before_sync, without_directory_sync, overwritten_in_place, truncated_and_written),
    *(deleted_before_rename, removed_in_the_wrong_order, recycled_too_early, synced_again_after_a_failure),
    in_a_directory_that_is_not_synced,
)
