"""The persisted shape of a schema, derived from its classes: what a baseline file freezes."""

from __future__ import annotations

import dataclasses
import re
import typing
from enum import EnumType
from types import UnionType
from typing import Any

from checkpointmanager._schema.unknown import CARRIER


def shape_of(root: type) -> dict[str, dict[str, dict[str, Any]]]:
    """Each dataclass below `root`: its persisted fields with type and default, in order."""
    shapes: dict[str, dict[str, dict[str, Any]]] = {}
    waiting: list[Any] = [root]
    while waiting:
        annotation = waiting.pop()
        waiting += typing.get_args(annotation)
        if not dataclasses.is_dataclass(annotation) or not isinstance(annotation, type):
            continue
        if annotation.__name__ in shapes:
            continue
        hints = typing.get_type_hints(annotation)
        fields = [field for field in dataclasses.fields(annotation) if not field.metadata.get(CARRIER)]
        shapes[annotation.__name__] = {
            field.name: {"type": _type_name(hints[field.name]), "default": _default(field)} for field in fields
        }
        waiting += [hints[field.name] for field in fields]
    return dict(sorted(shapes.items()))


def _type_name(annotation: Any) -> str:
    if isinstance(annotation, UnionType):
        return " | ".join(map(_type_name, typing.get_args(annotation)))
    if isinstance(annotation, EnumType):
        choices = [choice.value for choice in annotation]  # type: ignore[var-annotated]
        return f"{annotation.__name__}{choices}"
    if isinstance(annotation, type) and not typing.get_args(annotation):
        return "None" if annotation is type(None) else annotation.__name__
    return re.sub(r"\bdraState\.\w+\.", "", str(annotation))  # which module a class lives in is not persisted


def _default(field: dataclasses.Field[Any]) -> str:
    if field.default is not dataclasses.MISSING:
        return repr(field.default)
    if field.default_factory is not dataclasses.MISSING:
        return repr(field.default_factory())
    return "required"
