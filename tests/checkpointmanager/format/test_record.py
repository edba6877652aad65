"""The record of a transaction: every byte counts, and only what a writer of ours sealed is believed."""

from __future__ import annotations

import json

import orjson
import pytest

from checkpointmanager._format.envelope import checksum_of
from checkpointmanager._format.reason import Damaged, Reason, TooNew
from checkpointmanager._format.record import (
    MAX_MEMBERS,
    MAX_RECORD_BYTES,
    Member,
    MemberKind,
    Record,
    open_record,
    seal_record,
)

RECORD = Record(
    7,
    (
        Member("pod-7", MemberKind.PUT, 18, ".tmp-9f3a61c2-41"),
        Member("pod-8", MemberKind.CREATE, 1, ".tmp-9f3a61c2-42"),
        Member("pod-9", MemberKind.REMOVE, 5),
    ),
)


def sealed(document: object) -> bytes:
    body = orjson.dumps(document)[1:] + b"\n"
    return checksum_of(body) + body


def document(**changes: object) -> dict[str, object]:
    plain = json.loads(seal_record(RECORD))
    del plain["checksum"]
    return {name: value for name, value in (plain | changes).items() if value is not None}


def member(**changes: object) -> dict[str, object]:
    plain = {"key": "a", "kind": "put", "generation": 1, "file": ".tmp-1-1"}
    return {name: value for name, value in (plain | changes).items() if value is not None}


def test_the_bytes_are_those_of_the_page() -> None:
    assert seal_record(RECORD)[36:] == (
        b'"format":1,"record":".transaction","number":7,"members":['
        b'{"key":"pod-7","kind":"put","generation":18,"file":".tmp-9f3a61c2-41"},'
        b'{"key":"pod-8","kind":"create","generation":1,"file":".tmp-9f3a61c2-42"},'
        b'{"key":"pod-9","kind":"remove","generation":5}]}\n'
    )
    assert seal_record(RECORD).startswith(b'{"checksum":"xxh3:')


def test_what_was_sealed_comes_back() -> None:
    assert open_record(seal_record(RECORD)) == RECORD
    assert RECORD.keys == {"pod-7", "pod-8", "pod-9"}
    assert open_record(sealed(document(unknown="of a newer writer"))) == RECORD


def test_no_bytes_are_a_record_that_was_taken_back() -> None:
    assert open_record(b"") is None


def test_every_flipped_bit_and_every_truncation_is_noticed() -> None:
    blob = seal_record(RECORD)
    for bit in range(len(blob) * 8):
        flipped = bytearray(blob)
        flipped[bit // 8] ^= 1 << bit % 8
        with pytest.raises((Damaged, TooNew)):
            open_record(bytes(flipped))
    for size in range(1, len(blob)):
        with pytest.raises(Damaged):
            open_record(blob[:size])


def test_a_newer_format_is_no_damage() -> None:
    with pytest.raises(TooNew, match="format 2"):
        open_record(sealed(document(format=2)))


WRONG: dict[str, object] = {
    "no members": document(members=None),
    "empty members": document(members=[]),
    "another name": document(record=".transaction-2"),
    "no number": document(number=None),
    "number as text": document(number="7"),
    "no format": document(format=None),
    "members as text": document(members="a"),
    "a member as text": document(members=["a"]),
    "no key": document(members=[member(key=None)]),
    "a key that is a path": document(members=[member(key="../a")]),
    "the same key twice": document(members=[member(), member()]),
    "an unknown kind": document(members=[member(kind="rename")]),
    "no generation": document(members=[member(generation=None)]),
    "generation as text": document(members=[member(generation="1")]),
    "no file": document(members=[member(file=None)]),
    "a file that is a path": document(members=[member(file=".tmp-/../../etc/passwd")]),
    "a file that is no temp file": document(members=[member(file="a.json")]),
    "a file of a removal": document(members=[member(kind="remove")]),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_no_writer_of_ours_has_sealed_is_not_believed(name: str) -> None:
    with pytest.raises(Damaged) as damaged:
        open_record(sealed(WRONG[name]))
    assert damaged.value.reason is Reason.WRONG_SHAPE


def test_what_is_sealed_and_not_json_is_damage() -> None:
    body = b"nonsense}\n"
    with pytest.raises(Damaged) as damaged:
        open_record(checksum_of(body) + body)
    assert damaged.value.reason is Reason.NOT_JSON


def test_the_largest_record_fits() -> None:
    members = (
        Member(f"{number:0200}", MemberKind.CREATE, 10**15, f".tmp-12345678-{number + 10**9}")
        for number in range(MAX_MEMBERS)
    )
    blob = seal_record(Record(10**9, tuple(members)))
    assert len(blob) < MAX_RECORD_BYTES
    found = open_record(blob)
    assert found
    assert len(found.members) == MAX_MEMBERS
