"""Ways to keep one value in one file, some right and some wrong, as real programs do it.

Each starts with the value OLD, durable under NAME, and acknowledges NEW when it believes that NEW is durable.
"""

from __future__ import annotations

import errno
import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from checkpointmanager.testing import acknowledge, failing

NAME = "value"
PREVIOUS = ".previous"
JOURNAL = ".journal"
BLOCK_BYTES = 4096
OLDEST, OLD, NEW, NEWEST = (f"{word:>8}\n".encode() * 4 for word in ("oldest", "old", "new", "newest"))
GONE = b""


def setup(directory: Path) -> Path:
    for name, value in ((NAME, OLD), (PREVIOUS, OLDEST), (JOURNAL, b"\n" * BLOCK_BYTES * 3)):
        (directory / name).write_bytes(value)
    return directory


def read(directory: Path) -> bytes:
    """The last record of the journal, or the file, or the previous one."""
    content = (directory / JOURNAL).read_bytes()
    blocks = [content[start : start + BLOCK_BYTES] for start in range(0, len(content), BLOCK_BYTES)]
    values = [found for block in blocks for line in block.split(b"|") if (found := value_in(line.lstrip(b"\n")))]
    if values:
        return values[-1]
    for path in (directory / "new" / NAME, directory / NAME, directory / PREVIOUS):
        if path.exists():
            return path.read_bytes()
    return GONE


def record(value: bytes, *, sealed: bool = True) -> bytes:
    """Of three sectors."""
    body = value * 40
    return (hashlib.sha256(body).hexdigest().encode() if sealed else b"unsealed".ljust(64)) + body + b"|"


def value_in(line: bytes) -> bytes:
    """The value of a whole record; of one without a checksum, whatever is in its place."""
    seal, body = line[:64], line[64:]
    if seal.startswith(b"unsealed"):
        return body[len(body) // 2 :][: len(NEW)]
    return body[: len(NEW)] if hashlib.sha256(body).hexdigest().encode() == seal else b""


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


def append(directory: Path, at: int, blob: bytes, *, fails: bool = False) -> None:
    """Overwrite blanks of the journal."""
    with opened(directory / JOURNAL, os.O_WRONLY) as descriptor:
        os.lseek(descriptor, at, os.SEEK_SET)
        os.write(descriptor, blob)
        if fails:
            with suppress(OSError), failing(directory, "fdatasync", errno.EIO):
                os.fdatasync(descriptor)
        else:
            os.fdatasync(descriptor)


def journaled(directory: Path) -> None:
    """The record is the commit; the file follows without a sync."""
    for number, value in enumerate((NEW, NEWEST)):
        append(directory, number * BLOCK_BYTES, record(value).ljust(BLOCK_BYTES, b"\n"))
        write(directory / "temp", value, synced=False)
        os.rename(directory / "temp", directory / NAME)
        acknowledge(value)


def journaled_anew_after_a_failed_sync(directory: Path) -> None:
    append(directory, 0, record(NEW), fails=True)
    append(directory, BLOCK_BYTES, record(NEW))
    acknowledge(NEW)


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


def journaled_without_sync(directory: Path) -> None:
    with opened(directory / JOURNAL, os.O_WRONLY) as descriptor:
        os.write(descriptor, record(NEW))
    acknowledge(NEW)


def journaled_without_checksum(directory: Path) -> None:
    append(directory, 0, record(NEW, sealed=False))
    acknowledge(NEW)


def journaled_into_an_acknowledged_block(directory: Path) -> None:
    """The block that is written again holds the first record, too."""
    append(directory, 0, record(NEW))
    acknowledge(NEW)
    append(directory, len(record(NEW)), record(NEWEST))
    acknowledge(NEWEST)


def journal_synced_again_after_a_failure(directory: Path) -> None:
    append(directory, 0, record(NEW), fails=True)
    append(directory, BLOCK_BYTES, b"\n")  # syncs the file, and not what was forgotten
    acknowledge(NEW)


def journal_removed_before_the_file_is_synced(directory: Path) -> None:
    journaled(directory)
    with opened(directory / JOURNAL, os.O_WRONLY) as descriptor:
        os.write(descriptor, b"\n" * BLOCK_BYTES * 3)
        os.fdatasync(descriptor)


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


RIGHT = (
    *(classic, classic_with_pathlib, removed, written_anew_after_a_failed_sync),
    *(journaled, journaled_anew_after_a_failed_sync),
)
WRONG = (
    *(without_file_sync, renamed_before_sync, without_directory_sync, overwritten_in_place, truncated_and_written),
    *(deleted_before_rename, removed_in_the_wrong_order, synced_again_after_a_failure),
    *(in_a_directory_that_is_not_synced, journaled_without_sync, journaled_without_checksum),
    *(journaled_into_an_acknowledged_block, journal_synced_again_after_a_failure),
    journal_removed_before_the_file_is_synced,
)
