"""Finds the bytes that a file may hold after a power loss if some writes to it had not been synced.

A disk promises little: each changed block is old, new, torn, zero or garbage, and the file's length is the old or the
new one. A torn block has any of its new sectors, or ends inside a sector. This holds for new files and for files that
are overwritten in place. Overwriting bytes with the same bytes changes nothing, unless an earlier change is pending.
The number of combinations is bounded, and combinations of blocks that are left out are counted.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import reduce

from ._recording import Change

BLOCK_BYTES = 4096
SECTOR_BYTES = 512
MAX_PIECES = 6  # changed blocks or sectors that are tried in all combinations; beyond that, only the informative ones
MAX_ALONE = 16  # of more blocks: how many are tried alone, and missing alone
MAX_SECTORS_ALONE = 3  # of more sectors
MAX_STALE = 2  # other files whose old bytes may appear


@dataclass(frozen=True, slots=True)
class Content:
    """One possible content, and which part of the writes arrived."""

    data: bytes
    text: str


@dataclass(frozen=True, slots=True)
class PossibleContents:
    possible: tuple[Content, ...]
    left_out: int = 0


def possible_contents(durable: bytes, pending: Sequence[Change], stale: Iterable[bytes] = ()) -> PossibleContents:
    """Derived from what is certainly on the disk and what was done since; `stale` are former bytes of other files."""
    pending = _effective(durable, pending)
    if not pending:
        return PossibleContents((Content(durable, "as synced"),))
    left_out = 0
    found: dict[bytes, Content] = {}
    blocks = list(_changed_blocks(durable, pending))
    if len(blocks) > MAX_PIECES:
        left_out = 2 ** len(blocks) - len(_informative(blocks, MAX_ALONE))
    for content in _all(durable, pending, blocks, stale):
        found.setdefault(content.data, content)
    return PossibleContents(tuple(found.values()), left_out)


def applied(durable: bytes, pending: Iterable[Change]) -> bytes:
    return reduce(lambda content, change: change.applied(content), pending, durable)


def _effective(durable: bytes, pending: Iterable[Change]) -> list[Change]:
    """The changes without those that have no effect and come before any that has."""
    effective: list[Change] = []
    for change in pending:
        if effective or change.applied(durable) != durable:
            effective.append(change)
    return effective


def _all(durable: bytes, pending: Sequence[Change], blocks: list[int], stale: Iterable[bytes]) -> Iterator[Content]:
    new = applied(durable, pending)
    yield Content(new, "all of it")
    yield Content(durable, "nothing of it")
    for count in range(1, len(pending)):
        yield Content(applied(durable, pending[:count]), f"the first {count} of {len(pending)} changes")
    sectors = [*_changed_sectors(durable, new, blocks)]
    if len(blocks) == 1:
        yield from _cut_inside(durable, new, blocks[0] * BLOCK_BYTES)
    else:
        yield from _mixed(durable, new, blocks, BLOCK_BYTES, MAX_ALONE)
        yield from _cut_between(durable, new, blocks)
    yield from _mixed(durable, new, sectors, SECTOR_BYTES, MAX_SECTORS_ALONE)
    yield Content(_with_pieces(new, blocks, bytes(len(new)), BLOCK_BYTES), "its length, and NUL bytes")
    yield Content(_with_pieces(new, blocks, _rubbish(len(new)), BLOCK_BYTES), "its length, and rubbish")
    if len(blocks) == 1 and len(durable) <= blocks[0] * BLOCK_BYTES:  # a block that is new to the file
        for other in itertools.islice(stale, MAX_STALE):
            former = bytes(blocks[0] * BLOCK_BYTES) + other.ljust(BLOCK_BYTES, b"\0")
            yield Content(_with_pieces(new, blocks, former, BLOCK_BYTES), "its length, and what another file once held")


def _cut_inside(durable: bytes, new: bytes, start: int) -> Iterator[Content]:
    """Within the one block that changed: what follows in it is missing, old, or NUL."""
    end = max(min(len(new), start + BLOCK_BYTES), start + 1)
    changed = [at for at in range(start, end) if new[at : at + 1] != durable[at : at + 1]] or [start]
    for cut in sorted({changed[0] + 1, (changed[0] + changed[-1] + 1) // 2, changed[-1]}):
        yield Content(new[:cut] + durable[cut:], f"the first {cut} bytes")
        yield Content(new[:cut] + bytes(max(end - cut, 0)) + new[end:], f"the first {cut} bytes, then NUL bytes")


def _cut_between(durable: bytes, new: bytes, blocks: list[int]) -> Iterator[Content]:
    for block in _some(blocks[1:], MAX_ALONE):
        cut = block * BLOCK_BYTES
        yield Content(new[:cut] + durable[cut:], f"the first {cut} bytes")


def _mixed(durable: bytes, new: bytes, pieces: list[int], size: int, alone: int) -> Iterator[Content]:
    """The new length, with some of the pieces old (or NUL) and the others new."""
    old = durable.ljust(len(new), b"\0")
    for arrived in _informative(pieces, alone):
        missing = [piece for piece in pieces if piece not in arrived]
        parts = ", ".join(f"{piece * size}-{(piece + 1) * size - 1}" for piece in arrived) or "none"
        yield Content(_with_pieces(new, missing, old, size), f"its length, and of its bytes {parts}")


def _informative(pieces: list[int], alone: int) -> list[tuple[int, ...]]:
    """All subsets of a few pieces; of many: none, all, and for some of them this one alone and all but this one."""
    if len(pieces) <= MAX_PIECES:
        return [some for count in range(len(pieces) + 1) for some in itertools.combinations(pieces, count)]
    chosen = _some(pieces, alone)
    missing = [tuple(other for other in pieces if other != piece) for piece in chosen]
    return [(), *((piece,) for piece in chosen), *missing, tuple(pieces)]


def _some(pieces: list[int], count: int) -> list[int]:
    """Evenly chosen, the first and the last included."""
    if len(pieces) <= count:
        return pieces
    return sorted({pieces[number * (len(pieces) - 1) // (count - 1)] for number in range(count)})


def _changed_blocks(durable: bytes, pending: Sequence[Change]) -> Iterator[int]:
    """Includes blocks that were overwritten with the same bytes: they were pending too."""
    touched: set[int] = set()
    content = durable
    for change in pending:
        after = change.applied(content)
        start, end = change.extent(content)
        touched.update(range(start // BLOCK_BYTES, -(-end // BLOCK_BYTES)))
        content = after
    size = max(len(content), 1)
    yield from sorted(block for block in touched if block * BLOCK_BYTES < size) or [0]


def _changed_sectors(durable: bytes, new: bytes, blocks: Iterable[int]) -> Iterator[int]:
    """Those with other bytes than before: newlines over newlines, as in a journal's blanks, cannot be torn."""
    for block in blocks:
        for start in range(block * BLOCK_BYTES, min((block + 1) * BLOCK_BYTES, len(new)), SECTOR_BYTES):
            end = start + SECTOR_BYTES
            if new[start:end] != durable[start:end]:
                yield start // SECTOR_BYTES


def _with_pieces(content: bytes, pieces: Iterable[int], other: bytes, size: int) -> bytes:
    """`content` with these blocks or sectors taken from `other`."""
    result = bytearray(content)
    for piece in pieces:
        span = slice(piece * size, min((piece + 1) * size, len(content)))
        result[span] = other[span]
    return bytes(result)


def _rubbish(size: int) -> bytes:
    """Neither text nor NUL, so no parser accepts it."""
    return bytes(0xA5 + number % 64 for number in range(64)) * (size // 64 + 1)
