"""Finds the bytes that a file may hold after a power loss if some writes to it had not been synced.

A disk promises little: each changed block is old, new, zero or garbage, and the file's length is the old or the new
one. Files of one block may also be torn inside. Overwriting bytes with the same bytes changes nothing, unless an
earlier change is pending. The number of combinations is bounded, and those left out are counted.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import reduce

from ._operations import Change

BLOCK_BYTES = 4096
MAX_BLOCKS = 6  # changed blocks that are tried in all combinations; beyond that, only the informative ones
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
    if len(blocks) > MAX_BLOCKS:
        left_out = 2 ** len(blocks) - len(_informative(blocks))
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
    if len(blocks) == 1:
        yield from _torn(durable, new, blocks[0] * BLOCK_BYTES)
    else:
        yield from _mixed(durable, new, blocks)
    yield Content(_with_blocks(new, blocks, bytes(len(new))), "its length, and NUL bytes")
    yield Content(_with_blocks(new, blocks, _rubbish(len(new))), "its length, and rubbish")
    for other in itertools.islice(stale, MAX_STALE):
        if len(blocks) == 1 and other:
            yield Content(other[: len(new)].ljust(len(new), b"\0"), "its length, and what another file once held")


def _torn(durable: bytes, new: bytes, start: int) -> Iterator[Content]:
    """Cut within the one block that changed: what follows is missing, old, or NUL."""
    end = max(len(new), start + 1)
    for cut in sorted({start + 1, (start + end) // 2, end - 1}):
        yield Content(new[:cut] + durable[cut:], f"the first {cut} bytes")
        yield Content(new[:cut] + bytes(max(len(new) - cut, 0)), f"the first {cut} bytes, then NUL bytes")


def _mixed(durable: bytes, new: bytes, blocks: list[int]) -> Iterator[Content]:
    for arrived in _informative(blocks):
        missing = [block for block in blocks if block not in arrived]
        old = durable.ljust(len(new), b"\0")
        numbers = f"blocks {', '.join(map(str, arrived))}" if arrived else "no blocks"
        yield Content(_with_blocks(new, missing, old), f"its length, and {numbers} of it")
    for cut in range(BLOCK_BYTES, len(new), BLOCK_BYTES):
        yield Content(new[:cut] + durable[cut:], f"the first {cut} bytes")


def _informative(blocks: list[int]) -> list[tuple[int, ...]]:
    """All subsets of a few blocks; of many blocks: none, all, each one alone, and all but each one."""
    if len(blocks) <= MAX_BLOCKS:
        return [some for count in range(len(blocks) + 1) for some in itertools.combinations(blocks, count)]
    alone = [(block,) for block in blocks]
    missing = [tuple(other for other in blocks if other != block) for block in blocks]
    return [(), *alone, *missing, tuple(blocks)]


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


def _with_blocks(content: bytes, blocks: Iterable[int], other: bytes) -> bytes:
    """`content` with these blocks taken from `other`."""
    result = bytearray(content)
    for block in blocks:
        span = slice(block * BLOCK_BYTES, min((block + 1) * BLOCK_BYTES, len(content)))
        result[span] = other[span]
    return bytes(result)


def _rubbish(size: int) -> bytes:
    """Neither text nor NUL, so no parser accepts it."""
    return bytes(0xA5 + number % 64 for number in range(64)) * (size // 64 + 1)
