"""Exact repair of damaged bytes: the checksum proves that the result is what was once written.

Pure, like the envelope. Slow by nature, because it finds a flipped bit by trying every bit; never on a hot path.
"""

from __future__ import annotations

import json
import re
from typing import Any, NamedTuple

import orjson
from xxhash import xxh3_64_intdigest

from .._interruption import pass_on_interruption
from ._envelope import CHECKSUM_BYTES, CLOSING, MAX_GENERATION, checksum_matches, checksum_of, stated_digest

MAX_SEARCH_BYTES = 64 << 10  # about a second of searching; the time grows with the square of the size
LOAD_SEARCH_COST = 100_000_000_000  # bytes to hash: two or three seconds
CALL_COST = 4096  # bytes hashed in the time of one call of the hash function

_GENERATION = re.compile(rb'"generation":(\d{1,16}),')
_DATA = re.compile(rb'"data"\s*:\s*')


class Repair(NamedTuple):
    """The original bytes, and what had happened to them."""

    blob: bytes  # as it was written
    finding: str  # for people


class SearchBudget:
    """The total cost allowed for many searches, so that a start with many damaged files still ends."""

    def __init__(self, cost: int = LOAD_SEARCH_COST) -> None:
        self._left = cost

    def pays_for(self, size: int) -> bool:
        """Deduct the cost of a search through this many bytes, in full or not at all."""
        cost = 8 * size * (size + CALL_COST)
        if cost > self._left:
            return False
        self._left -= cost
        return True


def repair(blob: bytes, budget: SearchBudget | None = None) -> Repair | None:
    """The one checkpoint that these bytes once were, if that can be proved; without a budget, however long it takes."""
    if checksum_matches(blob):
        return None  # if anything is wrong with these bytes, it was written that way
    return (
        _without_trailing_bytes(blob)
        or _with_closing(blob)
        or _without_layout(blob)
        or _with_checksum_repaired(blob)
        or _with_bit_flipped(blob, budget)
    )


def generation_in(blob: bytes) -> int:
    """The generation that a damaged header appears to state, or 0. Only used to stay above it."""
    found = _GENERATION.search(blob, 0, 1024)
    generation = int(found[1]) if found else 0
    return generation if generation <= MAX_GENERATION else 0  # a number that nobody wrote must not end all writing


def legible_data(blob: bytes) -> Any:
    """The data that can still be parsed from damaged bytes, or None. Nothing vouches for it."""
    found = _DATA.search(blob)
    if found is None:
        return None
    try:
        return _DECODER.raw_decode(blob[found.end() :].decode())[0]
    except (ValueError, RecursionError) as error:
        pass_on_interruption(error)
        return None


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


_DECODER = json.JSONDecoder(parse_constant=_refuse_constant)  # unlike orjson, it stops where the value ends


def _without_trailing_bytes(blob: bytes) -> Repair | None:
    line = blob.find(b"\n") + 1
    if 0 < line < len(blob) and checksum_matches(blob[:line]):
        return Repair(blob[:line], f"{len(blob) - line} foreign bytes cut off at the end")
    return None


def _with_closing(blob: bytes) -> Repair | None:
    for missing in (b"\n", b"}\n"):
        if checksum_matches(blob + missing):
            return Repair(blob + missing, f"{len(missing)} missing bytes restored at the end")
    return None


def _without_layout(blob: bytes) -> Repair | None:
    """An editor or jq has added spaces and line breaks, or escaped characters, and changed nothing else."""
    try:
        compact = orjson.dumps(orjson.loads(blob)) + b"\n"
    except (orjson.JSONDecodeError, orjson.JSONEncodeError):
        return None
    return Repair(compact, "the JSON was reformatted, and is compact again") if checksum_matches(compact) else None


def _with_checksum_repaired(blob: bytes) -> Repair | None:
    """A flip in the first 36 bytes leaves a body whose true checksum differs from them in one bit."""
    true = checksum_of(blob[CHECKSUM_BYTES:])
    differing = [(index, a ^ b) for index, (a, b) in enumerate(zip(true, blob, strict=False)) if a != b]
    if len(blob) > CHECKSUM_BYTES and len(differing) == 1 and differing[0][1].bit_count() == 1:
        index, mask = differing[0]
        return Repair(true + blob[CHECKSUM_BYTES:], _flip(index, mask))
    return None


def _with_bit_flipped(blob: bytes, budget: SearchBudget | None) -> Repair | None:
    wanted = stated_digest(blob)
    if wanted is None or len(blob) > MAX_SEARCH_BYTES:
        return None
    body = bytearray(blob[CHECKSUM_BYTES:])
    last = max(0, len(body) - len(CLOSING))
    if not blob.endswith(CLOSING):
        searched = range(last, len(body))  # most likely cut off; a single flip can only be in the closing itself
    elif budget is None or budget.pays_for(last):
        searched = range(last)
    else:
        return None
    for index in searched:
        byte = body[index]
        for mask in (1, 2, 4, 8, 16, 32, 64, 128):
            body[index] = byte ^ mask
            if xxh3_64_intdigest(body) == wanted:
                return Repair(blob[:CHECKSUM_BYTES] + bytes(body), _flip(CHECKSUM_BYTES + index, mask))
        body[index] = byte
    return None


def _flip(index: int, mask: int) -> str:
    return f"bit {mask.bit_length() - 1} of byte {index} had flipped, and was set back"
