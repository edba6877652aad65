"""The codecs of unions. What is read is what was written, so each member must be recognisable on both sides.

Types tell the members apart. Dataclasses all look alike in JSON, so they need a Literal field in common, the tag, whose
values are different in each of them. IPv6 has colons, and IPv4 has none.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from typing import Any, Literal, get_args, get_origin

from .jsonvalues import AS_IS
from .misfit import Mismatch
from .simpletypes import ADVICE, ANYTHING, FLOAT, Codec, Function, Tags
from .unknown import Unknowns


def union(members: Sequence[Codec], name: str) -> Codec:
    """The codec of a union of types that have their codecs."""
    if ANYTHING in members and all(member.as_is for member in members):
        return ANYTHING  # such as Any | None
    objects = [member for member in members if member.tags is not None]
    addresses = {member.colons: member for member in members if member.colons is not None}
    if len(objects) > 1:
        decode = _by_tag(objects, name)
        members = [replace(member, decode=decode) if member.tags is not None else member for member in members]
    if len(addresses) > 1:
        decode = _by_colons(addresses)
        members = [replace(member, decode=decode) if member in addresses.values() else member for member in members]
    members = sorted(members, key=lambda member: member is FLOAT)  # so that in `int | float` an int stays one
    to_plain: dict[type, Function] = {}
    from_plain: dict[type, Function] = {}
    for member in members:
        for cls in member.python:
            if to_plain.setdefault(cls, member.encode) is not member.encode and not (member is FLOAT and cls is int):
                raise TypeError(f"{name}: the members of the union cannot be distinguished by type; {ADVICE}")
        for cls in member.json:
            if from_plain.setdefault(cls, member.decode) is not member.decode and not (member is FLOAT and cls is int):
                raise TypeError(f"{name}: the members of the union look alike in JSON; {ADVICE}")
    as_is = frozenset[type]().union(*(member.as_is for member in members))
    return Codec(_by_type(to_plain), _by_type(from_plain), frozenset(to_plain), frozenset(from_plain), as_is)


def _by_type(table: Mapping[type, Function]) -> Function:
    def convert(value: Any, unknowns: Unknowns) -> Any:
        if function := table.get(type(value)):
            return function(value, unknowns)
        raise Mismatch(f"is {type(value).__name__}, which is none of the declared types")

    return convert


def _by_colons(members: Mapping[bool, Codec]) -> Function:
    def decode(plain: Any, unknowns: Unknowns) -> Any:
        return members[":" in plain].decode(plain, unknowns)

    return decode


def tags_of(cls: Any, hints: Mapping[str, Any]) -> Tags:
    """The fields of a dataclass that may tell it apart: those declared as a Literal."""
    literals = [field.name for field in fields(cls) if get_origin(hints[field.name]) is Literal]
    return {name: frozenset((type(value), value) for value in get_args(hints[name])) for name in literals}


def tag_of(members: Sequence[tuple[str, Tags]]) -> str:
    """The field that tells these classes apart. Raises a TypeError that says which class lacks it."""
    common: dict[str, list[str]] = {}  # each Literal field, and the classes that lack it
    for tag in dict.fromkeys(tag for _, tags in members for tag in tags):
        common[tag] = [name for name, tags in members if tag not in tags]
        values = [value for _, tags in members for value in tags.get(tag, ())]
        if not common[tag] and len(values) == len(set(values)):
            return tag
    alike = f"{' and '.join(name for name, _ in members)} look alike in JSON"
    if not common:
        raise TypeError(f"{alike}: give each a Literal field that tells them apart, such as kind: Literal['a']")
    tag, lacking = min(common.items(), key=lambda item: len(item[1]))
    if lacking:
        raise TypeError(f"{alike}: {' and '.join(lacking)} has no Literal field {tag!r} that tells them apart")
    raise TypeError(f"{alike}: a value of the Literal field {tag!r} belongs to more than one of them")


def _by_tag(members: Sequence[Codec], name: str) -> Function:
    classes = [(cls.__name__, member.tags or {}) for member in members for cls in member.python]
    try:
        tag = tag_of(classes)
    except TypeError as error:
        raise TypeError(f"{name}: {error}; {ADVICE}") from None
    by_value = {value: member for member in members for value in (member.tags or {})[tag]}

    def decode(plain: Any, unknowns: Unknowns) -> Any:
        if tag not in plain:
            raise Mismatch("is missing, and tells which type the object has").inside(tag)
        value = plain[tag]
        member = by_value.get((type(value), value)) if type(value) in AS_IS else None
        if member is None:
            raise Mismatch("is none of the declared choices").inside(tag)
        if unknowns.version:
            unknowns.note_tag(plain, tag, (member.tags or {})[tag])
        return member.decode(plain, unknowns)

    return decode
