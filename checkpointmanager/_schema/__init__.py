"""What the data of one kind of checkpoint looks like, in every version that was ever written.

A Schema turns typed values into JSON and back, migrates what older programs wrote, and keeps what other
programs of this or a newer version added. It knows nothing about headers, checksums or files.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, NoReturn, TypeVar, overload

import orjson

from .._errors import UnstorableValue
from .._interruption import pass_on_interruption
from ..format import Damaged, Reason, TooNew, is_name
from .codec import codec_for
from .jsonvalues import check_plain, first_mismatch, to_json
from .misfit import Misfit, Mismatch, guarded, refusal
from .simpletypes import ANYTHING, Codec, SharedText
from .unknown import (
    DROPPED,
    NONE_EXPECTED,
    FieldMarks,
    UnknownFields,
    UnknownFound,
    Unknowns,
    unknown_fields,
)

if TYPE_CHECKING:
    from typing_extensions import TypeForm

__all__ = ["ANY_KIND", "Encoded", "Misfit", "Schema", "SharedText", "UnknownFields", "Unknowns", "unknown_fields"]

T = TypeVar("T")


class Encoded(NamedTuple):
    """Data as JSON, with the versions that its file must state."""

    json: bytes
    version: int
    readable_by: int

    def __repr__(self) -> str:
        return f"Encoded({len(self.json)} bytes, version={self.version}, readable_by={self.readable_by})"  # never data


class Schema(Generic[T]):
    """A kind of data: its type, its version, and how to read what other versions wrote.

    `type` is a dataclass, or any type made of dataclasses, lists, tuples, dicts, sets, enums, Literal, datetime,
    timedelta, UUID, IP addresses, networks and interfaces, paths, bytes, text, numbers, booleans and None. The keys
    of a dict are of a type that is stored as text or as an integer (in decimal digits, as Go writes them).
    Dataclasses in a union need a Literal field that tells them apart. For other models, pass `encode` (value ->
    plain JSON data) and `decode` (the way back). Without any of the three, the data is any JSON value. SharedText is
    text that many objects have in common.

    `migrations` maps a version to the function that turns its plain data into that of the next version; a version
    without one passes its data on unchanged. `readable_by` is the oldest version whose code may read and rewrite
    what this one writes; by default only this version itself may.

    Updates keep fields that the schema does not know if the file has this version or a newer one. In a file of an
    older version such fields have been removed since, and the next write drops them.
    """

    @overload
    def __init__(
        self,
        kind: str,
        version: int = ...,
        *,
        type: type[T],
        migrations: Mapping[int, Callable[[Any], Any]] | None = ...,
        readable_by: int | None = ...,
    ) -> None: ...
    @overload
    def __init__(
        self,
        kind: str,
        version: int = ...,
        *,
        type: TypeForm[T],  # such as a union; unknown to older type checkers
        migrations: Mapping[int, Callable[[Any], Any]] | None = ...,
        readable_by: int | None = ...,
    ) -> None: ...
    @overload
    def __init__(
        self,
        kind: str,
        version: int = ...,
        *,
        encode: Callable[[T], Any],
        decode: Callable[[Any], T],
        migrations: Mapping[int, Callable[[Any], Any]] | None = ...,
        readable_by: int | None = ...,
    ) -> None: ...
    @overload
    def __init__(
        self: Schema[Any],
        kind: str,
        version: int = ...,
        *,
        migrations: Mapping[int, Callable[[Any], Any]] | None = ...,
        readable_by: int | None = ...,
    ) -> None: ...
    def __init__(
        self,
        kind: str,
        version: int = 1,
        *,
        type: Any = None,
        encode: Callable[[T], Any] | None = None,
        decode: Callable[[Any], T] | None = None,
        migrations: Mapping[int, Callable[[Any], Any]] | None = None,
        readable_by: int | None = None,
    ) -> None:
        self.kind = kind
        self.version = version
        self.readable_by = version if readable_by is None else readable_by
        self.type: Any = type  # None if the schema has encode= and decode=, or none of the three
        self._migrations = dict(migrations or {})
        self._check()
        if (encode is None) != (decode is None) or (type is not None and encode is not None):
            raise TypeError(f"schema {kind}: give either type=, or encode= and decode= together, or none of them")
        if encode is not None and decode is not None:
            self._codec = _codec_of_pair(encode, decode)
            self._foreign = True
        else:
            self._foreign = False
            self._codec = ANYTHING if type is None else codec_for(type)

    def accepts(self, kind: str) -> bool:
        """True for the kind of files that this schema reads."""
        return kind == self.kind

    def encode(self, value: T, unknowns: Unknowns | None = None) -> Encoded:
        """The JSON of `value` with the fields of `unknowns` put back. Raises UnstorableValue."""
        kept = unknowns or Unknowns(self.version, self.readable_by)
        try:
            plain = self._to_plain(value, kept)
            if kept.source is not None:
                kept = self._looked_up(kept)
            if kept.of_whole:
                plain = kept.put_back_into_root(plain)
            json = to_json(plain)
            if json is None:
                raise self._first_mismatch(value, plain)
            return Encoded(json, kept.version, kept.readable_by)
        except Mismatch as mismatch:
            where, why = mismatch.where, mismatch.why
        raise UnstorableValue(where, why)  # outside the handler: a chained error might quote data

    def decode(self, data: bytes | memoryview, version: int, readable_by: int) -> tuple[T, Unknowns | None]:
        """The value in `data`, and the fields that this program does not know. Raises Damaged, TooNew or Misfit."""
        newer = version > self.version
        if newer and readable_by > self.version:
            raise TooNew(f"{self._newer(version)} {readable_by} or later may read it")
        try:
            if version < self.version:
                return self._from_plain(self._migrated(orjson.loads(data), version), DROPPED), None
            if newer:
                return self._decode_and_keep(data, Unknowns(version, readable_by))
            if self._foreign:
                return self._from_plain(orjson.loads(data), DROPPED), self._same_version(readable_by, data)
            try:
                return self._from_plain(orjson.loads(data), NONE_EXPECTED), None
            except UnknownFound:
                return self._decode_and_keep(data, self._same_version(readable_by))
        except orjson.JSONDecodeError as error:
            pass_on_interruption(error)
            problem: Exception = _not_json()
            cause = None
        except Mismatch as mismatch:
            problem, cause = Misfit(mismatch.where, mismatch.why), mismatch.cause
            if newer:
                problem = TooNew(f"{self._newer(version)} but {problem}")
        raise problem from cause  # outside the handler, as in encode

    def __repr__(self) -> str:
        return f"Schema({self.kind!r}, version={self.version}, readable_by={self.readable_by})"

    def _to_plain(self, value: Any, unknowns: Unknowns) -> Any:
        try:
            return self._codec.encode(value, unknowns)
        except RecursionError as error:
            pass_on_interruption(error)
            raise Mismatch("is nested too deeply, or contains itself") from None

    def _first_mismatch(self, value: T, plain: Any) -> Mismatch:
        """Encodes again, to distinguish the fields of dataclasses from the keys of dicts, which are data."""
        return first_mismatch(plain) if self._foreign else first_mismatch(self._to_plain(value, FieldMarks()), plain)

    def _from_plain(self, plain: Any, unknowns: Unknowns) -> T:
        try:
            value: T = self._codec.decode(plain, unknowns)
        except RecursionError as error:
            pass_on_interruption(error)
            raise Mismatch("is nested too deeply") from None
        except (Mismatch, UnknownFound):
            raise
        except Exception as error:  # noqa: BLE001  (such as a property of the program's own)
            raise refusal("its type", error) from None
        return value

    def _decode_and_keep(self, data: bytes | memoryview, unknowns: Unknowns) -> tuple[T, Unknowns]:
        plain = orjson.loads(data)
        value = self._from_plain(plain, unknowns)
        known = guarded("encode", self._to_plain, value, Unknowns(0, 0))
        # Parsed again, because decode= may have modified what it was given.
        unknowns.of_whole = unknowns.beyond(orjson.loads(data) if self._foreign else plain, known)
        return value, unknowns

    def _same_version(self, readable_by: int, source: bytes | memoryview | None = None) -> Unknowns:
        return Unknowns(self.version, max(readable_by, self.readable_by), source=source)

    def _looked_up(self, unknowns: Unknowns) -> Unknowns:
        """Only calling both decode= and encode= shows which fields they do not know, so only updates pay for it."""
        assert unknowns.source is not None
        _, found = self._decode_and_keep(unknowns.source, Unknowns(unknowns.version, unknowns.readable_by))
        return found if found.of_whole else Unknowns(self.version, self.readable_by)

    def _migrated(self, plain: Any, version: int) -> Any:
        for step in sorted(self._migrations):
            if step >= version:
                plain = guarded(f"the migration from version {step}", self._migrations[step], plain)
        return plain

    def _newer(self, version: int) -> str:
        return f"it has version {version} of kind {self.kind}, this program knows version {self.version},"

    def _check(self) -> None:
        if not is_name(self.kind):
            raise ValueError(f"schema kind {self.kind!r}: use letters, digits, '-', '_' and '.', as in a key")
        if type(self.version) is not int or self.version < 1:
            raise ValueError(f"schema {self.kind}: versions are integers from 1")
        if type(self.readable_by) is not int or not 1 <= self.readable_by <= self.version:
            raise ValueError(f"schema {self.kind}: readable_by must be between 1 and version {self.version}")
        if any(type(step) is not int or not 1 <= step < self.version for step in self._migrations):
            raise ValueError(f"schema {self.kind}: migrations start from versions 1 to {self.version - 1}")


def _not_json() -> Damaged:
    return Damaged(Reason.NOT_JSON, "the checksum holds, but the data is not JSON")


def _codec_of_pair(encode: Callable[[T], Any], decode: Callable[[Any], T]) -> Codec:
    """An error raised by encode= reaches the caller as it is; one raised by decode= is reported without its text."""

    def to_plain(value: Any, _: Unknowns) -> Any:
        plain = encode(value)
        check_plain(plain)
        return plain

    def from_plain(plain: Any, _: Unknowns) -> Any:
        return guarded("decode", decode, plain)

    return Codec(to_plain, from_plain, frozenset(), frozenset())


class _AnyKind(Schema[Any]):
    """For tools that know no schemas: accepts every kind and version whose file is whole and JSON."""

    def __init__(self) -> None:
        super().__init__("any")

    def accepts(self, kind: str) -> bool:
        return True

    def encode(self, value: Any, unknowns: Unknowns | None = None) -> NoReturn:
        raise UnstorableValue("$", "ANY_KIND reads, repairs and removes; to write, open the directory with its schema")

    def decode(self, data: bytes | memoryview, version: int, readable_by: int) -> tuple[Any, None]:
        try:
            return orjson.loads(data), None
        except orjson.JSONDecodeError as error:
            pass_on_interruption(error)
        raise _not_json()

    def __repr__(self) -> str:
        return "ANY_KIND"


ANY_KIND: Schema[Any] = _AnyKind()
"""Pass it instead of a schema to list, load, verify, recover and remove checkpoints of every kind and version."""
