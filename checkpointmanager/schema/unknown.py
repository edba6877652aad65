"""Fields that a newer program wrote and this one does not know, kept so that a rewrite does not lose them.

They are kept object by object: with the very object that was read, wherever it moves; else by its place along
field names and dict keys. Never by a position in a list, where another object may stand by now.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

CARRIER = "checkpointmanager.unknown"  # the mark in a dataclass field's metadata


class UnknownFields(Mapping[str, Any]):
    """What unknown_fields() holds: immutable, and out of reprs, because it is data."""

    __slots__ = ("_fields", "readable_by", "version")

    def __init__(self, fields: Mapping[str, Any] | None = None, version: int = 0, readable_by: int = 0) -> None:
        self._fields = dict(fields or {})
        self.version = version
        self.readable_by = readable_by

    def __getitem__(self, name: str) -> Any:
        return self._fields[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._fields)

    def __len__(self) -> int:
        return len(self._fields)

    def __repr__(self) -> str:
        return f"UnknownFields({len(self)} from version {self.version})"


def unknown_fields() -> Any:
    """Declare the dataclass field that carries what a newer version added to this object.

    With it the unknown fields go wherever the object goes: through dataclasses.replace, into other lists, and
    into create_checkpoint. Without it, update_checkpoint keeps them as this module's docstring says.
    """
    return field(default=UnknownFields(), repr=False, compare=False, hash=False, kw_only=True, metadata={CARRIER: True})


@dataclass(slots=True)
class Unknowns:
    """What one file of a newer version holds beyond what this program knows."""

    version: int
    readable_by: int
    by_place: dict[str, Any] = field(default_factory=dict)
    # The object is kept beside its fields so that its id stays its own.
    by_object: dict[int, tuple[object, dict[str, Any]]] = field(default_factory=dict)

    def keep(self, owner: object, fields: dict[str, Any]) -> None:
        self.by_object[id(owner)] = (owner, fields)

    def of(self, owner: object) -> Mapping[str, Any]:
        kept = self.by_object.get(id(owner))
        return kept[1] if kept else {}

    def carry(self, fields: UnknownFields) -> None:
        """An object of a newer file is written: the file is then of the newest version among its objects."""
        self.version, self.readable_by = max((self.version, self.readable_by), (fields.version, fields.readable_by))


def beyond(whole: Any, known: Any) -> dict[str, Any]:
    """The members of `whole` that `known` lacks, along members of objects only; {} if there are none."""
    if type(whole) is not dict or type(known) is not dict:
        return {}
    rest = {}
    for name, value in whole.items():
        if name not in known:
            rest[name] = value
        elif deeper := beyond(value, known[name]):
            rest[name] = _Deeper(deeper)
    return rest


def put_back(plain: Any, rest: Mapping[str, Any]) -> None:
    """Add to `plain` what beyond() found, where the object it belongs to still stands."""
    if type(plain) is not dict:
        return
    for name, value in rest.items():
        if not isinstance(value, _Deeper):
            plain.setdefault(name, value)
        elif name in plain:
            put_back(plain[name], value)


class _Deeper(dict[str, Any]):
    """Marks a known member that has unknown ones below it."""
