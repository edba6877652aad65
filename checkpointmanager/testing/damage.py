"""Damages checkpoints in every way that occurs, and says for each what a reader should report.

Each function takes a manager, the path of its directory or a MemoryStore, and a key. It changes a file in place, as
bit rot and careless hands do; the manager notices when it reads again.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

import orjson

from .. import CheckpointError, CheckpointManager, CheckpointNotFound, CheckpointTooNew, CorruptCheckpoint
from ..format import MAX_BYTES, Reason, checksum_of, open_sealed, seal
from ._rawbytes import Files, Memory, Target, raw_bytes_of

BLOCK_BYTES = 4096


class Damage(NamedTuple):
    """What was done to a checkpoint, and what a reader should report."""

    what: str  # what was done, in words
    key: str  # of the damaged checkpoint
    reason: Reason | None = None  # of the CorruptCheckpoint
    error: type[CheckpointError] | None = None  # None if it is still a valid checkpoint

    def expect(self, manager: CheckpointManager[Any]) -> None:
        """Raise AssertionError unless the manager reports this damage."""
        found: CheckpointError | None = None
        try:
            manager.get_checkpoint(self.key)
        except CheckpointError as error:
            found = error
        reason = found.reason if isinstance(found, CorruptCheckpoint) else None
        if (type(found) if found else None, reason) != (self.error, self.reason):
            wanted = self.reason or (self.error.__name__ if self.error else "a valid checkpoint")
            raise AssertionError(f"{self.what}: expected {wanted}, found {found or 'a valid checkpoint'}")


def flip_bit(target: Target, key: str, bit: int = -165) -> Damage:
    """Flip one bit, counted from the start, or from the end if negative."""
    raw = raw_bytes_of(target)
    blob = bytearray(raw.read(key))
    bit %= len(blob) * 8
    blob[bit // 8] ^= 1 << bit % 8
    raw.write(key, bytes(blob))
    return _corrupt(f"flipped bit {bit % 8} of byte {bit // 8}", key, Reason.CHECKSUM_MISMATCH)


def flip_byte(target: Target, key: str, offset: int = -20) -> Damage:
    """Flip all eight bits of one byte, which no repair finds."""
    raw = raw_bytes_of(target)
    blob = bytearray(raw.read(key))
    blob[offset] ^= 0xFF
    raw.write(key, bytes(blob))
    return _corrupt(f"flipped byte {offset % len(blob)}", key, Reason.CHECKSUM_MISMATCH)


def ruin(target: Target, key: str, *, previous: bool = False) -> Damage:
    """Change ten bytes near the end, beyond repair; the header stays. With `previous`, ruin the previous generation."""
    raw = raw_bytes_of(target)
    blob = bytearray(_previous(raw, key) if previous else raw.read(key))
    for index in range(len(blob) - 30, len(blob) - 20):
        blob[index] ^= 1
    if previous:
        raw.write_previous(key, bytes(blob))
        return Damage("ten bytes of the previous generation changed", key)
    raw.write(key, bytes(blob))
    return _corrupt("ten bytes changed", key, Reason.CHECKSUM_MISMATCH)


def truncate(target: Target, key: str, size: int | None = None) -> Damage:
    """Cut the file, by default to half of its bytes."""
    raw = raw_bytes_of(target)
    blob = raw.read(key)
    left = blob[: len(blob) // 2 if size is None else size]
    raw.write(key, left)
    return _corrupt(f"cut to {len(left)} of {len(blob)} bytes", key, Reason.TRUNCATED if left else Reason.EMPTY)


def empty(target: Target, key: str) -> Damage:
    """Cut the file to nothing, as a power loss leaves a file that was never synced."""
    return truncate(target, key, 0)


def fill_with_nuls(target: Target, key: str, offset: int = 0) -> Damage:
    """Write NUL bytes from an offset to the end, as a file system that stores the length before the bytes leaves."""
    raw = raw_bytes_of(target)
    blob = raw.read(key)
    raw.write(key, blob[:offset] + bytes(len(blob[offset:])))
    return _corrupt(f"NUL bytes from offset {offset}", key, Reason.NUL_FILLED)


def blank_block(target: Target, key: str, block: int = 0, size: int = BLOCK_BYTES) -> Damage:
    """Fill one block with NUL bytes: a write that went elsewhere, or never arrived."""
    raw = raw_bytes_of(target)
    blob = raw.read(key)
    start, end = block * size, min((block + 1) * size, len(blob))
    raw.write(key, blob[:start] + bytes(end - start) + blob[end:])
    last = end == len(blob)
    return _corrupt(f"block {block} is NUL bytes", key, Reason.NUL_FILLED if last else Reason.CHECKSUM_MISMATCH)


def append(target: Target, key: str, more: bytes = b'{"second":"document"}\n') -> Damage:
    """Add foreign bytes after the end, as an overwrite with something shorter leaves them."""
    raw = raw_bytes_of(target)
    raw.write(key, raw.read(key) + more)
    nuls = more.endswith(b"\0")
    return _corrupt(f"{len(more)} bytes appended", key, Reason.NUL_FILLED if nuls else Reason.TRAILING_BYTES)


def swap(target: Target, key: str, other: str) -> Damage:
    """Exchange the files of two checkpoints: each is whole, and neither belongs to its key."""
    raw = raw_bytes_of(target)
    one, two = raw.read(key), raw.read(other)
    raw.write(key, two)
    raw.write(other, one)
    return _corrupt(f"changed places with {other}", key, Reason.WRONG_KEY)


def replace_by_previous(target: Target, key: str) -> Damage:
    """Put the previous generation in its place, as a restored backup does. It is valid, so no checksum notices."""
    return replace_by(target, key, _previous(raw_bytes_of(target), key))


def replace_by(target: Target, key: str, blob: bytes) -> Damage:
    """Put bytes that this checkpoint once had in its place."""
    raw_bytes_of(target).write(key, blob)
    return Damage("replaced by an older generation", key)


def edit_by_hand(target: Target, key: str) -> Damage:
    """Change the JSON but not the checksum, as an admin with an editor does."""
    raw = raw_bytes_of(target)
    document = orjson.loads(raw.read(key))
    document["data"] = {"edited": "by hand"}
    raw.write(key, orjson.dumps(document) + b"\n")
    return _corrupt("edited, with the old checksum", key, Reason.CHECKSUM_MISMATCH)


def reformat(target: Target, key: str) -> Damage:
    """Keep the JSON but change the bytes, as a formatter such as jq does."""
    raw = raw_bytes_of(target)
    raw.write(key, orjson.dumps(orjson.loads(raw.read(key)), option=orjson.OPT_INDENT_2) + b"\n")
    return _corrupt("reformatted", key, Reason.CHECKSUM_MISMATCH)


def seal_rubbish(target: Target, key: str) -> Damage:
    """Write data that is not JSON under a valid checksum, as a broken program might."""
    raw = raw_bytes_of(target)
    header, _ = open_sealed(raw.read(key), key)
    raw.write(key, seal(header, b'{"cut off'))
    return _corrupt("sealed with data that is not JSON", key, Reason.NOT_JSON)


def seal_without_header(target: Target, key: str) -> Damage:
    """Write a valid checksum without a header after it."""
    body = b'"hello":"world"}\n'
    raw_bytes_of(target).write(key, checksum_of(body) + body)
    return _corrupt("sealed without a header", key, Reason.WRONG_SHAPE)


def make_too_new(target: Target, key: str) -> Damage:
    """Make it look as if a much newer program wrote it: not damaged, and not to be touched."""
    raw = raw_bytes_of(target)
    header, data = open_sealed(raw.read(key), key)
    raw.write(key, seal(header._replace(version=1_000_000, readable_by=1_000_000), data))
    return Damage("written by a newer program", key, error=CheckpointTooNew)


def remove(target: Target, key: str) -> Damage:
    """Delete the file. Not damage: without its file a checkpoint does not exist."""
    raw_bytes_of(target).remove(key)
    return Damage("removed", key, error=CheckpointNotFound)


def change_mode(target: Target, key: str, mode: int = 0) -> Damage:
    """Change the file's mode; by default this makes it unreadable, unless the reader is root."""
    path = _files(target).path(key)
    os.chmod(path, mode)
    try:
        os.close(os.open(path, os.O_RDONLY))
    except PermissionError:
        return _corrupt(f"mode {mode:04o}", key, Reason.UNREADABLE)
    return Damage(f"mode {mode:04o}, which does not keep this user from reading", key)


def make_too_large(target: Target, key: str, max_bytes: int = MAX_BYTES) -> Damage:
    """Extend the file beyond the manager's max_bytes, with a hole that takes no room on the disk."""
    os.truncate(_files(target).path(key), max_bytes + 1)
    return _corrupt(f"{max_bytes + 1} bytes long", key, Reason.TOO_LARGE)


def replace_by_directory(target: Target, key: str) -> Damage:
    """Put a directory in its place, as a container runtime does for a missing path that it should mount."""
    path = _files(target).path(key)
    os.unlink(path)
    os.mkdir(path)
    return _corrupt("a directory in its place", key, Reason.NOT_A_FILE)


def replace_by_link(target: Target, key: str) -> Damage:
    """Move the file away and put a symbolic link to it in its place, as an attacker might."""
    path = _files(target).path(key)
    folder, name = os.path.split(path)
    hidden = os.path.join(folder, f".moved-{name}")
    os.replace(path, hidden)
    os.symlink(hidden, path)
    return _corrupt("a symbolic link in its place", key, Reason.NOT_A_FILE)


Maker = Callable[[Target, str], Damage]

EVERYWHERE: tuple[Maker, ...] = (
    *(flip_bit, flip_byte, ruin, truncate, empty, fill_with_nuls, blank_block, append, replace_by_previous),
    *(edit_by_hand, reformat, seal_rubbish, seal_without_header, make_too_new, remove),
)
ON_DISK: tuple[Maker, ...] = (change_mode, make_too_large, replace_by_directory, replace_by_link)


def every_damage(target: Target, key: str, other: str = "") -> Iterator[Damage]:
    """Apply every damage in turn, and restore the checkpoint after each.

    If `other` is the key of another checkpoint, the two are swapped as well. Damage that needs a previous generation
    is left out if there is none, and damage that needs a file is left out in a MemoryStore.
    """
    raw = raw_bytes_of(target)
    makers: list[Maker] = [*EVERYWHERE, *(ON_DISK if isinstance(raw, Files) else ())]
    if raw.previous(key) is None:
        makers.remove(replace_by_previous)
    if other:
        makers.append(partial(swap, other=other))
    before = {name: (raw.read(name), raw.previous(name)) for name in (key, other) if name}
    for maker in makers:
        try:
            yield maker(target, key)
        finally:
            for name, (blob, previous) in before.items():
                raw.restore(name, blob, previous)


def _previous(raw: Files | Memory, key: str) -> bytes:
    before = raw.previous(key)
    if before is None:
        raise ValueError(f"{key} has no previous generation; write it twice before")
    return before


def _corrupt(what: str, key: str, reason: Reason) -> Damage:
    return Damage(what, key, reason, CorruptCheckpoint)


def _files(target: Target) -> Files:
    raw = raw_bytes_of(target)
    if not isinstance(raw, Files):
        raise TypeError("only a file can be damaged like this, not an entry of a MemoryStore; use a directory")
    return raw
