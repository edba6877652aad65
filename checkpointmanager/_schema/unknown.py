"""Keeps the fields that another program wrote and this one does not know, so that a rewrite does not lose them.

The other program may be newer, or have the same version and come from another branch. Only a migration from an older
version drops fields. Unknown fields stay with the very object that was read, wherever it moves; otherwise with its
place along field names and dict keys. They never stay with a position in a list: another object may be there by now.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from .jsonvalues import Fields

CARRIER = "checkpointmanager.unknown"  # the mark in a dataclass field's metadata
Values = frozenset[tuple[type, Any]]  # of a Literal, with their types, because True equals 1


class UnknownFields(Mapping[str, Any]):
    """The value of a field declared with unknown_fields(): immutable, and not shown in reprs, because it is data."""

    __slots__ = ("_fields", "readable_by", "version")

    def __init__(self, fields: Mapping[str, Any] | None = None, version: int = 0, readable_by: int = 0) -> None:
        self._fields = dict(fields or {})
        self.version = version  # of the file that the fields came from
        self.readable_by = readable_by  # of that file

    def __getitem__(self, name: str) -> Any:
        return self._fields[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._fields)

    def __len__(self) -> int:
        return len(self._fields)

    def __repr__(self) -> str:
        return f"UnknownFields({len(self)} from version {self.version})"


NO_FIELDS = UnknownFields()


def _no_fields() -> UnknownFields:
    return NO_FIELDS  # immutable, so all objects can share it


def unknown_fields() -> Any:
    """Declare the dataclass field that carries what another program added to this object.

    With it, unknown fields go wherever the object goes: through dataclasses.replace, into other lists, and into
    create_checkpoint. Without it, update_checkpoint keeps them with the object that was read, or with its place along
    field names and dict keys.
    """
    return field(
        default_factory=_no_fields,
        repr=False,
        compare=False,
        hash=False,
        kw_only=True,
        metadata={CARRIER: True},
    )


class Rest(dict[str, Any]):
    """The members of one JSON object that this program does not know; a Rest as a member has those below a known one.

    In a union another class may take the object's place. So `tag` is the field that tells the classes apart, with its
    values in the class that the unknown members belong to.
    """

    tag: tuple[str, Values] | None = None

    def belongs_to(self, plain: Mapping[str, Any]) -> bool:
        if self.tag is None:
            return True
        name, values = self.tag
        value = plain.get(name)
        return (type(value), value) in values


@dataclass(slots=True)
class Unknowns:
    """The content of one file that this program does not know, and the versions that the next write must state.

    The version is 0 if there is nothing to keep.
    """

    version: int
    readable_by: int
    of_whole: Rest = field(default_factory=Rest, repr=False)
    # JSON that is searched for unknown fields only when they are needed; see Schema.
    source: bytes | memoryview | None = field(default=None, repr=False)
    # The object is kept beside its unknown fields, so that no other object can get its id.
    by_object: dict[int, tuple[object, Rest]] = field(default_factory=dict, repr=False)
    # The tags of JSON objects in unions, by the id of the object: only while decoding keeps these objects alive.
    _tags: dict[int, tuple[str, Values]] = field(default_factory=dict, repr=False)
    # Objects that already have their unknown fields, kept for the same reason.
    _complete: dict[int, object] = field(default_factory=dict, repr=False)

    def keep(self, owner: object, whole: Any, known: Any) -> None:
        """Keep what the JSON object of `owner` has beyond the known members."""
        self.by_object[id(owner)] = (owner, self.beyond(whole, known))

    def note_tag(self, plain: dict[str, Any], tag: str, values: Values) -> None:
        """Unknown members of this object belong to the class whose tag has one of these values."""
        self._tags[id(plain)] = (tag, values)

    def beyond(self, whole: Any, known: Any) -> Rest:
        """The members of `whole` that `known` lacks, found along members of objects only."""
        rest = Rest()
        if type(whole) is not dict or type(known) is not dict:
            return rest
        rest.tag = self._tags.get(id(whole))
        for name, value in whole.items():
            if name not in known:
                rest[name] = value
            elif deeper := self.beyond(value, known[name]):
                rest[name] = deeper
        return rest

    def carry(self, fields: UnknownFields) -> None:
        """A file that receives an object of a newer file gets the newest version among its objects."""
        self.version = max(self.version, fields.version)
        self.readable_by = max(self.readable_by, fields.readable_by)

    def put_back(self, owner: object, plain: Any) -> Any:
        """`plain` with the unknown fields of its owner. If the owner was read from a file, its new place adds none."""
        if id(owner) not in self.by_object:
            return plain
        whole = self._merged(plain, self.by_object[id(owner)][1])
        self._complete[id(whole)] = whole
        return whole

    def put_back_into_root(self, plain: Any) -> Any:
        """Like put_back, for the root, which keeps its unknown fields even if it is a new object."""
        return self._merged(plain, self.of_whole)

    def _merged(self, plain: Any, rest: Rest) -> Any:
        if type(plain) is not dict or id(plain) in self._complete or not rest.belongs_to(plain):
            return plain
        whole = dict(plain)  # a copy: encode= may have returned a dict that belongs to the caller
        for name, value in rest.items():
            if not isinstance(value, Rest):
                whole.setdefault(name, value)
            elif name in whole:
                whole[name] = self._merged(whole[name], value)
        return whole


class FieldMarks(Unknowns):
    """Puts nothing back, but marks the objects that are encoded with it; see Fields."""

    def __init__(self) -> None:
        super().__init__(0, 0, by_object={0: (None, Rest())})  # not empty, so that put_back is called for every object

    def put_back(self, owner: Any, plain: Any) -> Any:
        return Fields(plain, [field.name for field in fields(owner)])


# Only for decoding, which does not change these two.
DROPPED = Unknowns(0, 0)  # for a migrated file: its unknown fields are dropped on purpose
NONE_EXPECTED = Unknowns(0, 0)  # for a file of this version: an unknown field raises UnknownFound


class UnknownFound(Exception):
    """Decoding has met the first unknown field, and must start again and keep unknown fields."""
