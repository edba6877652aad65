"""The bytes of one checkpoint: a header, the data as JSON, and a checksum over every byte after itself.

Pure: no I/O, no schema, no clock. Verification hashes the raw bytes before anything is parsed, so no change
of a schema, a serialiser or a field order can ever look like damage. FORMAT.md describes the same bytes.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from functools import lru_cache
from operator import itemgetter
from typing import NamedTuple

import orjson
from xxhash import xxh3_64_hexdigest

from .._interruption import pass_on_interruption
from ._keys import CACHED_KEYS, encode_key
from ._reason import Damaged, Reason, TooNew

FORMAT = 1  # of checkpoints; any other number is of a newer release
MAX_BYTES = 64 << 20  # the limit for one file, unless the caller sets another
MAX_GENERATION = (1 << 53) - 1  # the largest integer that every JSON parser reads exactly
CHECKSUM_BYTES = 36  # {"checksum":"xxh3:0123456789abcdef",

_OPENING = b'{"checksum":"xxh3:'
_DATA = b',"data":'
CLOSING = b"}\n"  # the end of every sealed line
_STATED = re.compile(rb'\{"checksum":"xxh3:([0-9a-f]{16})",')
_OTHER_CHECKSUM = re.compile(rb'\{"checksum":"([a-z][a-z0-9-]{1,30}):([0-9a-f]{8,128})",')


class Header(NamedTuple):
    """What a file says about its data. Kind and boot are names (keys.py), so they need no escaping."""

    kind: str  # the name of the schema
    version: int  # of the schema
    readable_by: int  # the oldest version whose programs may read and rewrite it
    key: str
    generation: int  # counts the changes of this key
    boot: str  # the id of the boot in which it was written; "" if unknown
    written: datetime  # in UTC


_VALUES = itemgetter(*Header._fields)
_TYPES = (str, int, int, str, int, str, str)  # their types in JSON


def seal(header: Header, data: bytes | memoryview) -> bytes:
    """The bytes of a file whose data is already JSON."""
    members = (
        f'"format":{FORMAT},"kind":"{header.kind}","version":{header.version},"readable_by":{header.readable_by},'
        f'"key":{_as_json(header.key)},"generation":{header.generation},"boot":"{header.boot}"'
    )
    body = b"".join((members.encode(), b',"written":', time_as_json(header.written), _DATA, data, CLOSING))
    return checksum_of(body) + body


def open_sealed(blob: bytes, key: str) -> tuple[Header, memoryview]:
    """The header and the JSON data in the file of `key`, neither parsed nor copied. Raises Damaged or TooNew."""
    header, data = open_any(blob)
    if header.key != key:
        raise Damaged(Reason.WRONG_KEY, f"the file is a whole checkpoint, but of key {encode_key(header.key)}")
    return header, data


def open_any(blob: bytes) -> tuple[Header, memoryview]:
    """Like open_sealed, for a file whose name does not state its key."""
    if blob[:CHECKSUM_BYTES] != checksum_of(memoryview(blob)[CHECKSUM_BYTES:]):
        raise _why(blob)
    start = blob.find(_DATA, CHECKSUM_BYTES)
    if start < 0 or not blob.endswith(CLOSING):
        raise Damaged(Reason.WRONG_SHAPE, "the checksum holds, but there is no data member at the end")
    header = _parse_header(b"{" + blob[CHECKSUM_BYTES:start] + b"}")
    return header, memoryview(blob)[start + len(_DATA) : -len(CLOSING)]


def verify(blob: bytes) -> None:
    """Raise Damaged with the most telling reason unless the checksum holds."""
    if not checksum_matches(blob):
        raise _why(blob)


def checksum_of(body: bytes | memoryview) -> bytes:
    """The first bytes of a file whose other bytes are `body`."""
    return _OPENING + xxh3_64_hexdigest(body).encode() + b'",'


def stated_digest(blob: bytes) -> int | None:
    """The digest that the file states; None if its first bytes are not exactly a checksum."""
    stated = _STATED.match(blob)
    return int(stated[1], 16) if stated else None


def checksum_matches(blob: bytes) -> bool:
    """True if the checksum is that of the bytes after it."""
    return blob[:CHECKSUM_BYTES] == checksum_of(memoryview(blob)[CHECKSUM_BYTES:])


def _why(blob: bytes) -> Exception:
    """Name what happened to bytes whose checksum does not hold, the surest signs first."""
    size = len(blob)
    stated = _STATED.match(blob)
    expected = f"xxh3:{stated[1].decode()}" if stated else ""
    actual = f"xxh3:{xxh3_64_hexdigest(memoryview(blob)[CHECKSUM_BYTES:])}" if size > CHECKSUM_BYTES else ""

    def damaged(reason: Reason, detail: str) -> Damaged:
        return Damaged(reason, detail, expected=expected, actual=actual)

    if not blob:
        return damaged(Reason.EMPTY, "the file has no bytes")
    intact = len(blob.rstrip(b"\0"))
    if intact == 0:
        return damaged(Reason.NUL_FILLED, f"all {size} bytes are NUL")
    if intact < size:
        return damaged(Reason.NUL_FILLED, f"NUL bytes from offset {intact} to the end at {size}")
    line = blob.find(b"\n") + 1
    if 0 < line < size and checksum_matches(blob[:line]):
        detail = f"a whole checkpoint of {line} bytes, then {size - line} bytes that do not belong to it"
        return damaged(Reason.TRAILING_BYTES, detail)
    if not blob.endswith(CLOSING) and not _last_bytes_changed(blob):
        return damaged(Reason.TRUNCATED, f"the file ends after {size} bytes, before its closing brace and newline")
    other = _OTHER_CHECKSUM.match(blob)
    if other and not stated and f"xxh3:{other[2].decode()}" != actual:
        return TooNew(f"its checksum uses the unknown hash {other[1].decode()!r}")
    if not stated:
        return damaged(Reason.CHECKSUM_MISMATCH, f"the first {CHECKSUM_BYTES} bytes are not a checksum")
    return damaged(Reason.CHECKSUM_MISMATCH, f"the file says {expected}, its bytes hash to {actual}")


def _last_bytes_changed(blob: bytes) -> bool:
    """True if only the last two bytes are wrong: then they were changed, and nothing is missing."""
    return checksum_matches(blob[:-2] + CLOSING)


def _parse_header(text: bytes) -> Header:
    """Check every member that this release knows; unknown members are a newer writer's business."""
    try:
        members = orjson.loads(text)
    except orjson.JSONDecodeError:
        raise Damaged(Reason.NOT_JSON, "the checksum holds, but the header is not JSON") from None
    file_format = members.get("format")
    if type(file_format) is not int:
        raise Damaged(Reason.WRONG_SHAPE, "the header has no format number")
    if file_format != FORMAT:
        raise TooNew(f"its file format is {file_format}, this release knows {FORMAT}")
    try:
        values = _VALUES(members)
    except KeyError:
        raise _wrong_member(members) from None
    if (*map(type, values),) != _TYPES:
        raise _wrong_member(members)
    kind, version, readable_by, key, generation, boot, written = values
    if not 1 <= generation <= MAX_GENERATION or not 1 <= readable_by <= version <= MAX_GENERATION:
        raise Damaged(Reason.WRONG_SHAPE, "the header's generation or versions make no sense")
    return Header(kind, version, readable_by, key, generation, boot, parse_time(written))


def _wrong_member(members: dict[str, object]) -> Damaged:
    """The quick check finds that something is wrong but not what, so this looks for it."""
    name, found, cls = next(
        (name, type(members.get(name)), cls)
        for name, cls in zip(Header._fields, _TYPES, strict=True)
        if type(members.get(name)) is not cls
    )
    return Damaged(Reason.WRONG_SHAPE, f"the header's {name} is {found.__name__}, not {cls.__name__}")


def parse_time(text: str) -> datetime:
    """The time that a header states. Raises Damaged."""
    try:
        time = datetime.fromisoformat(text)
    except ValueError as error:
        pass_on_interruption(error)
        raise Damaged(Reason.WRONG_SHAPE, "the header's written is not a time") from None
    if time.tzinfo is not UTC:
        raise Damaged(Reason.WRONG_SHAPE, "the header's written is not a time in UTC")
    return time


@lru_cache(maxsize=CACHED_KEYS)
def _as_json(key: str) -> str:
    return orjson.dumps(key).decode()


def time_as_json(time: datetime) -> bytes:
    """The time with all six fractional digits, which orjson omits when they are zero."""
    assert time.tzinfo is UTC
    text = orjson.dumps(time, option=orjson.OPT_UTC_Z)  # in a fifth of the time of isoformat
    return text if time.microsecond else text[:-2] + b'.000000Z"'
