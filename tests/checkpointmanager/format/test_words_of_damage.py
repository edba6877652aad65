"""What the envelope reports besides the reason: sizes, offsets and the two checksums, for an operator to check."""

from __future__ import annotations

import pytest

from checkpointmanager.format import CHECKSUM_BYTES, Damaged, Reason, checksum_of, verify

from ..samples import SEALED


def damage_of(blob: bytes) -> Damaged:
    with pytest.raises(Damaged) as caught:
        verify(blob)
    return caught.value


def test_a_file_of_nothing_but_nul_bytes_is_distinguished_from_one_with_a_lost_tail() -> None:
    assert damage_of(b"\0" * 50).detail == "all 50 bytes are NUL"
    assert damage_of(SEALED[:40] + b"\0" * 10).detail == "NUL bytes from offset 40 to the end at 50"


def test_first_bytes_that_are_no_checksum_are_reported_as_such() -> None:
    damage = damage_of(b"x" + SEALED[1:])

    assert damage.reason is Reason.CHECKSUM_MISMATCH
    assert damage.detail == "the first 36 bytes are not a checksum"


def test_both_checksums_are_reported_where_there_are_two() -> None:
    damage = damage_of(SEALED.replace(b"agent-a", b"agent-b"))
    stated, actual = SEALED[13:34].decode(), checksum_of(SEALED[CHECKSUM_BYTES:].replace(b"agent-a", b"agent-b"))

    assert (damage.expected, damage.actual) == (stated, actual[13:34].decode())
    assert damage.detail == f"the file says {damage.expected}, its bytes hash to {damage.actual}"


@pytest.mark.parametrize("size", [0, 1, CHECKSUM_BYTES - 1, CHECKSUM_BYTES])
def test_a_file_that_ends_with_or_in_its_checksum_has_no_bytes_to_hash(size: int) -> None:
    damage = damage_of(SEALED[:size])

    assert damage.actual == ""
    assert damage.expected == (SEALED[13:34].decode() if size == CHECKSUM_BYTES else "")


def test_one_byte_after_the_checksum_is_hashed() -> None:
    assert damage_of(SEALED[: CHECKSUM_BYTES + 1]).actual.startswith("xxh3:")
