"""The journal of a directory, and the rule that says what counts after a crash. Pure, like the envelope.

A journal is JSON Lines. Each line is sealed like a checkpoint: its first member is the checksum of every byte after it.
The first line describes the journal; each other line is a record of changes that are committed together. Owners,
readers and checkpoint-verify all use `truth` for the keys that a journal names. FORMAT.md describes the same in prose.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import NamedTuple

import orjson

from ._envelope import (
    CHECKSUM_BYTES,
    CLOSING,
    MAX_GENERATION,
    checksum_matches,
    checksum_of,
    open_any,
    parse_time,
    time_as_json,
)
from ._keys import encode_key, is_key
from ._reason import Damaged, Reason, TooNew
from ._repair import generation_in

JOURNAL_FORMAT = 1
BLOCK_BYTES = 4096  # each group of records starts at a multiple, so no sector with acknowledged bytes is written again
MAX_JOURNAL_BYTES = 1 << 30  # a larger file is not a journal that this library wrote

_START = re.compile(
    rb'\{"checksum":"xxh3:[0-9a-f]{16}",'
    rb'(?:"format":[0-9]+,"journal":|"record":[0-9]+,"sizes":\[([0-9]{1,10}(?:,[0-9]{1,10})*)\],"changes":\[)'
)
_REMOVED = b'"removed":'
_END = b"]" + CLOSING


class Change(NamedTuple):
    """A generation of a key: its sealed checkpoint, or None if the key was removed."""

    key: str
    generation: int
    blob: bytes | None  # the sealed line

    def __repr__(self) -> str:
        what = "removed" if self.blob is None else f"{len(self.blob)} bytes"
        return f"Change({self.key!r}, generation {self.generation}, {what})"  # never data


class Record(NamedTuple):
    """Changes that are committed together, and the line that holds them."""

    changes: tuple[Change, ...]  # all or none of them count
    line: bytes

    def __repr__(self) -> str:
        return f"Record({self.changes!r})"


class JournalContent(NamedTuple):
    """What a journal holds. `damaged` counts its pieces that are not whole lines: rot, or a write that was cut off."""

    since: datetime | None  # when the journal was begun; None if its first line is damaged
    records: tuple[Record, ...]  # the whole ones
    damaged: int
    end: int  # the first multiple of BLOCK_BYTES with only blanks behind it

    def by_key(self) -> dict[str, list[Change]]:
        """The changes of each key that the journal names, in the order of the records."""
        found: dict[str, list[Change]] = {}
        for record in self.records:
            for change in record.changes:
                found.setdefault(change.key, []).append(change)
        return found


def truth(changes: Iterable[Change], *files: Change | None) -> tuple[Change | None, Change | None]:
    """The current and the previous generation of a key that a journal names; None for one that does not exist.

    `files` are the whole contents of its two files. The highest generation is the current one, the second highest the
    previous one. A removal leaves neither.
    """
    by_generation = {change.generation: change for change in changes}
    by_generation.update((file.generation, file) for file in files if file)
    newest, *older = sorted(by_generation.values(), key=_generation, reverse=True)[:2]
    if newest.blob is None:
        return None, None
    return newest, older[0] if older and older[0].blob is not None else None


def seal_journal(since: datetime) -> bytes:
    """The first line of a journal."""
    return _sealed(f'"format":{JOURNAL_FORMAT},"journal":'.encode() + time_as_json(since) + CLOSING)


def seal_record(changes: Sequence[Change], number: int) -> bytes:
    """One line with all these changes. The number is for people: the order of records has no meaning."""
    parts = []
    for change in changes:
        parts.append(_removal(change) if change.blob is None else change.blob[:-1])
    sizes = ",".join(map(str, map(len, parts)))
    body = b"".join((b'"record":%d,"sizes":[%b],"changes":[' % (number, sizes.encode()), b",".join(parts), _END))
    return checksum_of(body) + body


def seal_removal(change: Change) -> bytes:
    """The content of a file that stands for an absent checkpoint."""
    return _sealed(_removal(change)[1:-1] + CLOSING)


def change_in(blob: bytes, key: str, *, is_previous: bool) -> Change | None:
    """What a file of a key counts as beside a journal; None if it is not whole, which is usual after a power loss."""
    try:
        return _open_file(blob, key)
    except Damaged:
        return None
    except TooNew:
        if stated := generation_in(blob):
            return Change(key, stated, blob)
        return None if is_previous else Change(key, MAX_GENERATION, blob)  # never replaced by what may be older


def _open_file(blob: bytes, key: str) -> Change:
    change = _open_removal(blob) if blob.startswith(_REMOVED, CHECKSUM_BYTES) else _open_checkpoint(blob)
    if change.key != key:
        raise Damaged(Reason.WRONG_KEY, f"the file is whole, but of key {encode_key(change.key)}")
    return change


def is_removal(blob: bytes, key: str) -> bool:
    """True for the content of a file that stands for an absent checkpoint."""
    if not blob.startswith(_REMOVED, CHECKSUM_BYTES):
        return False
    try:
        return _open_removal(blob).key == key
    except Damaged:
        return False


def read_journal(blob: bytes) -> JournalContent:
    """Every whole record, wherever it stands. Raises TooNew if a newer release wrote the journal."""
    since: datetime | None = None
    records: list[Record] = []
    damaged = position = 0
    end = 0  # of the piece that is looked at: the first newline after its start
    while found := _START.search(blob, position):
        # A line that is not whole may have swallowed the next one, so the search goes on inside it.
        if found.start() >= end:
            end = blob.find(b"\n", found.end()) + 1 or len(blob)
        damaged += bool(blob[position : found.start()].strip(b"\n"))
        try:
            if found[1] is None:
                since = _open_header(blob[found.start() : end])
            else:
                records.append(_open_record(blob, found, end))
            position = end
        except Damaged:
            position = found.start() + 1  # what is left of it counts as damaged
    rest = blob[position:].rstrip(b"\n")
    damaged += bool(rest)
    return JournalContent(since, tuple(records), damaged, padded_size(position + len(rest)))


def padded_size(size: int) -> int:
    """The next multiple of BLOCK_BYTES."""
    return size + -size % BLOCK_BYTES


def padded(lines: bytes) -> bytes:
    """Lines and as many newlines as fill the last block."""
    return lines + b"\n" * (-len(lines) % BLOCK_BYTES)


def _generation(change: Change) -> int:
    return change.generation


def _sealed(body: bytes) -> bytes:
    return checksum_of(body) + body


def _removal(change: Change) -> bytes:
    return orjson.dumps({"removed": change.key, "generation": change.generation})


def _open_header(line: bytes) -> datetime:
    if not checksum_matches(line):
        raise Damaged(Reason.CHECKSUM_MISMATCH, "the line is not whole")
    members = _members(b"{" + line[CHECKSUM_BYTES:])
    number, since = members.get("format"), members.get("journal")
    if type(number) is int and number != JOURNAL_FORMAT:
        raise TooNew(f"its journal has format {number}, this release knows {JOURNAL_FORMAT}")
    if number != JOURNAL_FORMAT or not isinstance(since, str):
        raise Damaged(Reason.WRONG_SHAPE, "the checksum holds, but this is not the first line of a journal")
    return parse_time(since)


def _open_record(blob: bytes, found: re.Match[bytes], end: int) -> Record:
    """The record in a piece of a journal. The sizes say where each change ends, so their bytes stay exact."""
    sizes = [int(size) for size in found[1].split(b",")]
    position = found.end() - found.start()
    # Before anything is copied or hashed: a piece may have swallowed thousands of records.
    if found.start() + position + sum(sizes) + len(sizes) - 1 + len(_END) != end:
        raise Damaged(Reason.CHECKSUM_MISMATCH, "the line is not whole")
    line = blob[found.start() : end]
    if not checksum_matches(line):
        raise Damaged(Reason.CHECKSUM_MISMATCH, "the line is not whole")
    changes = []
    for size in sizes:
        changes.append(_open_part(line[position : position + size]))
        position += size + 1
    return Record(tuple(changes), line)


def _open_part(part: bytes) -> Change:
    if part.startswith(_REMOVED, 1):
        return _removed(_members(part))
    return _open_checkpoint(part + b"\n")


def _open_checkpoint(blob: bytes) -> Change:
    header, _ = open_any(blob)
    if not is_key(header.key):  # elsewhere the key is compared with a file name; here it becomes one
        raise Damaged(Reason.WRONG_SHAPE, "the checksum holds, but the header's key cannot be one")
    return Change(header.key, header.generation, blob)


def _open_removal(blob: bytes) -> Change:
    if not checksum_matches(blob):
        raise Damaged(Reason.CHECKSUM_MISMATCH, "a removal whose checksum does not hold")
    return _removed(_members(b"{" + blob[CHECKSUM_BYTES:]))


def _removed(members: dict[str, object]) -> Change:
    key, generation = members.get("removed"), members.get("generation")
    if not isinstance(key, str) or not is_key(key) or type(generation) is not int:
        raise Damaged(Reason.WRONG_SHAPE, "the checksum holds, but this is not a removal")
    if not 1 <= generation <= MAX_GENERATION:
        raise Damaged(Reason.WRONG_SHAPE, "the removal's generation makes no sense")
    return Change(key, generation, None)


def _members(text: bytes) -> dict[str, object]:
    try:
        members = orjson.loads(text)
    except orjson.JSONDecodeError:
        raise Damaged(Reason.NOT_JSON, "the checksum holds, but the line is not JSON") from None
    if not isinstance(members, dict):
        raise Damaged(Reason.NOT_JSON, "the checksum holds, but the line is not a JSON object")
    return members
