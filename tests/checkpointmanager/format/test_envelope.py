"""Every small damage to a file is noticed, and named correctly. By enumeration, over a sample of 266 bytes."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime, timedelta, timezone

import pytest

from checkpointmanager.format import (
    CHECKSUM_BYTES,
    Damaged,
    Header,
    Reason,
    TooNew,
    checksum_of,
    open_sealed,
    seal,
    stated_digest,
    verify,
)

from ...long import sample, times
from ..samples import DATA, HEADER, KEY, MEMBERS, SEALED, all_flips, with_checksum


def opened(blob: bytes) -> tuple[Header, bytes]:
    header, data = open_sealed(blob, KEY)
    return header, bytes(data)


def damage_of(blob: bytes) -> Damaged:
    with pytest.raises(Damaged) as caught:
        open_sealed(blob, KEY)
    return caught.value


def test_what_was_sealed_is_opened() -> None:
    assert opened(SEALED) == (HEADER, DATA)
    assert with_checksum(MEMBERS + b',"data":' + DATA + b"}\n") == SEALED


def test_every_one_of_2128_bit_flips_is_a_checksum_mismatch() -> None:
    """Also in the prefix, where "too new" would be wrong, in the digest, and in the closing brace and newline."""
    reasons = Counter(damage_of(blob).reason for blob in all_flips(SEALED))
    assert reasons == {Reason.CHECKSUM_MISMATCH: 8 * len(SEALED)} == {Reason.CHECKSUM_MISMATCH: 2128}


def test_every_byte_substitution_is_noticed() -> None:
    """A NUL in the last place looks like the start of a hole; a word for another checksum needs more than a byte."""
    reasons: Counter[Reason] = Counter()
    for index in range(len(SEALED)):
        for byte in sample(set(range(256)) - {SEALED[index]}, 5):
            reasons[damage_of(SEALED[:index] + bytes([byte]) + SEALED[index + 1 :]).reason] += 1
    assert reasons == {Reason.CHECKSUM_MISMATCH: 266 * times(51, 255) - 1, Reason.NUL_FILLED: 1}


def test_every_one_of_266_truncations_is_named_so() -> None:
    reasons = [damage_of(SEALED[:size]).reason for size in range(len(SEALED))]
    assert reasons == [Reason.EMPTY] + [Reason.TRUNCATED] * 265


def test_nul_fill_from_every_one_of_266_offsets_is_named_with_its_offset() -> None:
    for offset in range(len(SEALED)):
        damage = damage_of(SEALED[:offset] + bytes(len(SEALED) - offset))
        assert damage.reason is Reason.NUL_FILLED
        assert f"offset {offset} " in damage.detail or (offset == 0 and "all 266 bytes" in damage.detail)


def test_every_one_of_256_appended_bytes_is_named_as_trailing() -> None:
    """An appended NUL could also be the start of a block that was never written, and is reported as that."""
    reasons = [damage_of(SEALED + bytes([byte])).reason for byte in range(256)]
    assert reasons == [Reason.NUL_FILLED] + [Reason.TRAILING_BYTES] * 255


@pytest.mark.parametrize(
    "tail", [SEALED, b"}\n", b"\n", DATA, b"\0x"], ids=["itself", "closing", "line", "data", "nul"]
)
def test_whatever_follows_a_whole_checkpoint_is_trailing(tail: bytes) -> None:
    damage = damage_of(SEALED + tail)
    assert damage.reason is Reason.TRAILING_BYTES
    assert f"{len(tail)} bytes that do not belong" in damage.detail


def test_a_digest_in_capitals_is_not_the_digest() -> None:
    shouted = SEALED[:18] + SEALED[18:34].upper() + SEALED[34:]
    assert shouted != SEALED
    assert stated_digest(shouted) is None
    assert damage_of(shouted).reason is Reason.CHECKSUM_MISMATCH


@pytest.mark.parametrize("sort", [b"xxh9", b"blake3", b"sha-256", b"crc32c"])
@pytest.mark.parametrize("digest", [b"0123abcd", b"00112233445566778899aabbccddeeff" * 2])
def test_an_unknown_sort_of_checksum_is_too_new_and_not_damage(sort: bytes, digest: bytes) -> None:
    with pytest.raises(TooNew, match=f"uses the unknown hash {sort.decode()!r}"):
        verify(b'{"checksum":"' + sort + b":" + digest + b'",' + SEALED[CHECKSUM_BYTES:])


def test_an_unknown_format_is_too_new_and_not_damage() -> None:
    with pytest.raises(TooNew, match="file format is 2"):
        open_sealed(with_checksum(b'"format":2,"new":[],"data":{}}\n'), KEY)


def test_members_that_are_not_known_are_ignored() -> None:
    body = b'"new":"x","list":[1,"\\",\\"data\\":"],' + MEMBERS + b',"newer":null,"data":' + DATA + b"}\n"
    assert opened(with_checksum(body)) == (HEADER, DATA)


def test_members_may_be_in_any_order() -> None:
    body = b",".join(reversed(MEMBERS.split(b","))) + b',"data":null}\n'
    assert opened(with_checksum(body)) == (HEADER, b"null")


def test_data_that_contains_a_data_member_is_returned_whole() -> None:
    data = b'{"a":1,"data":{"b":2,"data":3}}'
    assert opened(seal(HEADER, data)) == (HEADER, data)


@pytest.mark.parametrize(
    ("member", "changed", "says"),
    [
        (b'"format":1', b'"format":"1"', "format"),
        (b'"format":1', b'"format":true', "format"),
        (b'"format":1,', b"", "format"),
        (b'"kind":"Lease"', b'"kind":null', "kind is NoneType, not str"),
        (b'"kind":"Lease",', b"", "kind is NoneType, not str"),
        (b'"version":3', b'"version":"3"', "version is str, not int"),
        (b'"version":3', b'"version":3.0', "version is float, not int"),
        (b'"version":3', b'"version":1', "make no sense"),
        (b'"readable_by":2', b'"readable_by":true', "readable_by is bool, not int"),
        (b'"readable_by":2', b'"readable_by":0', "make no sense"),
        (b'"readable_by":2', b'"readable_by":4', "make no sense"),
        (b'"key":"pod-7"', b'"key":7', "key is int, not str"),
        (b'"generation":17', b'"generation":0', "make no sense"),
        (b'"generation":17', b'"generation":null', "generation is NoneType, not int"),
        (b'"boot":"7f1c0b7e-5d0e-4a3b-9c55-2f6f4f6f1a11"', b'"boot":[]', "boot is list, not str"),
        (b'"2026-11-16T08:15:30.123456Z"', b"1763280930", "written is int, not str"),
        (b'"2026-11-16T08:15:30.123456Z"', b'"yesterday"', "written is not a time"),
        (b'"2026-11-16T08:15:30.123456Z"', b'"2026-11-16T08:15:30.123456"', "not a time in UTC"),
        (b'"2026-11-16T08:15:30.123456Z"', b'"0001-01-01T00:00:00+14:00"', "not a time in UTC"),
    ],
)
def test_a_header_member_of_the_wrong_shape_is_named(member: bytes, changed: bytes, says: str) -> None:
    assert member in MEMBERS
    damage = damage_of(with_checksum(MEMBERS.replace(member, changed) + b',"data":{}}\n'))
    assert damage.reason is Reason.WRONG_SHAPE
    assert says in damage.detail


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (MEMBERS + b"}\n", Reason.WRONG_SHAPE),
        (b'"data":{},' + MEMBERS + b"}\n", Reason.WRONG_SHAPE),
        (MEMBERS + b',"data":{}}', Reason.WRONG_SHAPE),
        (b',"data":{}}\n', Reason.WRONG_SHAPE),
        (b"", Reason.WRONG_SHAPE),
        (b"}\n", Reason.WRONG_SHAPE),
        (MEMBERS[:-1] + b',"data":{}}\n', Reason.NOT_JSON),
        (b"nonsense" + b',"data":{}}\n', Reason.NOT_JSON),
        (b'"kind":"\xff",' + MEMBERS + b',"data":{}}\n', Reason.NOT_JSON),
    ],
    ids=[
        "no data",
        "data first",
        "no newline",
        "no header",
        "nothing",
        "closing",
        "open string",
        "no JSON",
        "no UTF-8",
    ],
)
def test_a_checksum_over_something_else_does_not_make_it_a_checkpoint(body: bytes, reason: Reason) -> None:
    assert damage_of(with_checksum(body)).reason is reason


def test_the_file_of_another_key_is_a_wrong_key() -> None:
    with pytest.raises(Damaged, match="of key pod-7") as caught:
        open_sealed(SEALED, "pod-8")
    assert caught.value.reason is Reason.WRONG_KEY


def test_times_always_have_six_digits_of_a_second() -> None:
    whole = Header("Lease", 1, 1, KEY, 1, "", datetime(2026, 11, 16, 8, 15, 30, 0, UTC))
    blob = seal(whole, b"{}")
    assert b'"written":"2026-11-16T08:15:30.000000Z"' in blob
    assert open_sealed(blob, KEY)[0] == whole


@pytest.mark.parametrize("zone", [None, timezone(timedelta(hours=2))], ids=["none", "two hours ahead"])
def test_a_time_that_no_reader_would_take_is_not_sealed(zone: timezone | None) -> None:
    with pytest.raises(AssertionError):
        seal(HEADER._replace(written=datetime(2026, 1, 2, tzinfo=zone)), DATA)


# What is reported besides the reason: sizes, offsets and the two checksums, for an operator to check.


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
