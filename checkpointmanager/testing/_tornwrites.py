"""Which bytes a file may hold after a power loss, when some of what was written to it had not been synced.

A disk promises little: each changed block is old, new, zero or rubbish, and the file's length is the old or the new
one. Files of one block are also torn inside. Bytes that are written over the same bytes stay what they are. Bounded,
and it says how many were left out.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import reduce

from ._operations import Change

BLOCK_BYTES = 4096
MAX_BLOCKS = 6  # of changed blocks in all combinations; beyond, only the telling ones
MAX_STALE = 2  # other files whose old bytes may shine through


@dataclass(frozen=True, slots=True)
class Content:
    """One possibility, and what happened to get there."""

    data: bytes
    told: str


@dataclass(frozen=True, slots=True)
class PossibleContents:
    possible: tuple[Content, ...]
    left_out: int = 0


def possible_contents(durable: bytes, pending: Sequence[Change], stale: Iterable[bytes] = ()) -> PossibleContents:
    """From what is certainly on the disk and what was done since; `stale` are bytes that other files once had."""
    pending = _effective(durable, pending)
    if not pending:
        return PossibleContents((Content(durable, "as synced"),))
    left_out = 0
    found: dict[bytes, Content] = {}
    blocks = list(_changed_blocks(durable, pending))
    if len(blocks) > MAX_BLOCKS:
        left_out = 2 ** len(blocks) - len(_telling(blocks))
    for content in _all(durable, pending, blocks, stale):
        found.setdefault(content.data, content)
    return PossibleContents(tuple(found.values()), left_out)


def applied(durable: bytes, pending: Iterable[Change]) -> bytes:
    return reduce(lambda content, change: change.applied(content), pending, durable)


def _effective(durable: bytes, pending: Iterable[Change]) -> list[Change]:
    """Without those that change nothing, if nothing before them is still on its way."""
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
    for arrived in _telling(blocks):
        missing = [block for block in blocks if block not in arrived]
        old = durable.ljust(len(new), b"\0")
        told = f"blocks {', '.join(map(str, arrived)) or 'none'}"
        yield Content(_with_blocks(new, missing, old), f"its length, and {told} of it")
    for cut in range(BLOCK_BYTES, len(new), BLOCK_BYTES):
        yield Content(new[:cut] + durable[cut:], f"the first {cut} bytes")


def _telling(blocks: list[int]) -> list[tuple[int, ...]]:
    """All subsets of few blocks; of many the empty and the full, each one alone, and each one missing."""
    if len(blocks) <= MAX_BLOCKS:
        return [some for count in range(len(blocks) + 1) for some in itertools.combinations(blocks, count)]
    alone = [(block,) for block in blocks]
    missing = [tuple(other for other in blocks if other != block) for block in blocks]
    return [(), *alone, *missing, tuple(blocks)]


def _changed_blocks(durable: bytes, pending: Sequence[Change]) -> Iterator[int]:
    """Also those that were written with what they held before: they were on their way all the same."""
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
    """Neither text nor NUL, so that no parser can take it for anything."""
    return bytes(0xA5 + number % 64 for number in range(64)) * (size // 64 + 1)
