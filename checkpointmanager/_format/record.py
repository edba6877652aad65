"""The sealed record of a transaction: which files take which names, and which names go.

Pure, like the envelope, and sealed like a checkpoint: the first member is the checksum of every byte after it. Once
the record has its name, the transaction happens; FORMAT.md says how readers use it.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum
from typing import Any, NamedTuple

import orjson

from .envelope import CHECKSUM_BYTES, CLOSING, checksum_of, verify
from .keys import is_name
from .names import TEMP, TRANSACTION
from .reason import Damaged, Reason, TooNew

RECORD_FORMAT = 1
MAX_MEMBERS = 10_000
MAX_RECORD_BYTES = 8 << 20  # twice what that many members with the longest names need


class MemberKind(StrEnum):
    """What a transaction does to one key."""

    PUT = "put"  # replaces a checkpoint; one that has been removed meanwhile stays removed
    CREATE = "create"  # creates the checkpoint, whatever is in its place
    REMOVE = "remove"


class Member(NamedTuple):
    """One key of a transaction. `file` is the new checkpoint, synced before the record; "" for a removal."""

    key: str
    kind: MemberKind
    generation: int  # a file with this generation is the member itself; with a higher one, newer
    file: str = ""


class Record(NamedTuple):
    """The members of one transaction. `number` rises with each transaction of an owner."""

    number: int
    members: tuple[Member, ...]

    @property
    def keys(self) -> frozenset[str]:
        return frozenset(member.key for member in self.members)


def seal_record(record: Record) -> bytes:
    """The bytes of the file `.transaction`."""
    members = [_as_json(member) for member in record.members]
    whole = {"format": RECORD_FORMAT, "record": TRANSACTION, "number": record.number, "members": members}
    body = orjson.dumps(whole, option=orjson.OPT_APPEND_NEWLINE)[1:]
    return checksum_of(body) + body


def open_record(blob: bytes) -> Record | None:
    """The record in the bytes of the file `.transaction`. Raises Damaged or TooNew.

    None for an empty file, which a withdrawn transaction leaves until the withdrawal is durable.
    """
    if not blob:
        return None
    verify(blob)
    if not blob.endswith(CLOSING):
        raise Damaged(Reason.TRUNCATED, "the record does not end with its closing brace")
    try:
        found = orjson.loads(b"{" + blob[CHECKSUM_BYTES:])
    except orjson.JSONDecodeError:
        raise Damaged(Reason.NOT_JSON, "the checksum holds, but the record is not JSON") from None
    if type(found.get("format")) is int and found["format"] != RECORD_FORMAT:
        raise TooNew(f"its transaction record has format {found['format']}, this release knows {RECORD_FORMAT}")
    try:
        members = tuple(_parsed(found))
    except (KeyError, TypeError, ValueError):
        raise Damaged(Reason.WRONG_SHAPE, "the checksum holds, but this is not a transaction record") from None
    return Record(found["number"], members)


def _as_json(member: Member) -> dict[str, object]:
    found: dict[str, object] = {"key": member.key, "kind": member.kind, "generation": member.generation}
    return {**found, "file": member.file} if member.file else found


def _parsed(found: dict[str, Any]) -> Iterator[Member]:
    """Raises KeyError, TypeError or ValueError for anything that our writers would not have sealed."""
    if (found["format"], found["record"]) != (RECORD_FORMAT, TRANSACTION) or type(found["number"]) is not int:
        raise ValueError
    keys: set[str] = set()
    for each in found["members"]:
        member = Member(each["key"], MemberKind(each["kind"]), each["generation"], each.get("file", ""))
        has_file = member.kind is not MemberKind.REMOVE
        if not is_name(member.key) or member.key in keys or type(member.generation) is not int:
            raise ValueError
        if has_file != bool(member.file) or (has_file and not _is_temp(member.file)):
            raise ValueError
        keys.add(member.key)
        yield member
    if not keys:
        raise ValueError


def _is_temp(file: str) -> bool:
    """True for a temp file of the same directory, the only kind a record may name."""
    return file.startswith(TEMP) and is_name(file.removeprefix(TEMP))
