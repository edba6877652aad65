"""A whole checkpoint file for the tests that take it apart, and ways to damage bytes."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime

from checkpointmanager.format import Header, checksum_of, seal

KEY = "pod-7"
HEADER = Header(
    kind="Lease",
    version=3,
    readable_by=2,
    key=KEY,
    generation=17,
    boot="7f1c0b7e-5d0e-4a3b-9c55-2f6f4f6f1a11",
    written=datetime(2026, 11, 16, 8, 15, 30, 123456, UTC),
)
DATA = b'{"holder":"agent-a","seconds":60,"tags":["a","\xc3\xa4"]}'
SEALED = seal(HEADER, DATA)
MEMBERS = (
    b'"format":1,"kind":"Lease","version":3,"readable_by":2,"key":"pod-7","generation":17,'
    b'"boot":"7f1c0b7e-5d0e-4a3b-9c55-2f6f4f6f1a11","written":"2026-11-16T08:15:30.123456Z"'
)


def with_checksum(body: bytes) -> bytes:
    """A file with a valid checksum, whatever its other bytes are."""
    return checksum_of(body) + body


def flipped(blob: bytes, bit: int) -> bytes:
    changed = bytearray(blob)
    changed[bit // 8] ^= 1 << bit % 8
    return bytes(changed)


def all_flips(blob: bytes) -> Iterator[bytes]:
    return (flipped(blob, bit) for bit in range(8 * len(blob)))
