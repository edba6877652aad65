"""Describes the shapes of types as plain data, for a baseline, and decides which shape reads what another wrote."""

from __future__ import annotations

import ast
import dataclasses
import types
import typing
from collections.abc import Sequence
from enum import EnumType
from pathlib import PurePath
from typing import Any, Literal

from .unions import tag_of, tags_of
from .unknown import CARRIER

Shapes = dict[str, dict[str, dict[str, str]]]  # class -> field -> its type and default

FIXED = "tuple of a fixed length"
LISTS = ("list", "tuple", "set", "frozenset", FIXED)
SETS = ("set", "frozenset")
TEXTS = (
    "datetime",
    "UUID",
    "bytes",
    "Path",
    *(f"IPv{n}{what}" for n in "46" for what in ("Address", "Network", "Interface")),
)
TAG = "required, because it tells the types apart"


def shapes_of(root: Any) -> dict[str, Any]:
    """The type of a schema, and each dataclass below it with its persisted fields."""
    namer = _Namer()
    spelled = namer.spell(root)
    for name, field in namer.tags:  # a file without the tag cannot be read, whatever its default
        namer.shapes[name][field]["default"] = TAG
    return {"type": spelled, "classes": dict(sorted(namer.shapes.items()))}


def with_names(frozen: dict[str, Any], now: Shapes) -> dict[str, Any]:
    """The frozen shape with the current names of its classes, which files do not hold."""
    before: Shapes = frozen["classes"]
    names: dict[str, str] = {}
    for old in [name for name in before if name not in now]:
        alike = [new for new in now if new not in before and now[new] == before[old]]
        if len(alike) == 1:
            names[old] = alike[0]
    if not names:
        return frozen
    classes = {
        names.get(name, name): {
            field: shape | {"type": _with_names(shape["type"], names)} for field, shape in fields.items()
        }
        for name, fields in before.items()
    }
    renamed = frozen | {"type": _with_names(frozen["type"], names), "classes": classes}
    return with_names(renamed, now)  # a class that contains a renamed class is recognised only now


def _with_names(spelled: str, names: dict[str, str]) -> str:
    tree = ast.parse(spelled, mode="eval")
    for node in ast.walk(tree):
        if isinstance(node, ast.Name):
            node.id = names.get(node.id, node.id)
    return ast.unparse(tree)


def fit(old: str, new: str) -> bool:
    """True if type `new` reads everything that was written as type `old`. Fields of classes are not compared."""
    return _fit(ast.parse(old, mode="eval").body, ast.parse(new, mode="eval").body)


class _Namer:
    """Spells types, and collects the dataclasses that it meets."""

    def __init__(self) -> None:
        self.shapes: Shapes = {}
        self.tags: set[tuple[str, str]] = set()  # class and field
        self._names: dict[type, str] = {}

    def spell(self, annotation: Any) -> str:
        while hasattr(annotation, "__supertype__"):  # a NewType
            annotation = annotation.__supertype__
        origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
        if annotation is Any or annotation is object:
            return "Any"
        if annotation in (None, types.NoneType):
            return "None"
        if origin is typing.Annotated:
            return self.spell(arguments[0])
        if origin in (typing.Union, types.UnionType):
            return self._union(arguments)
        if origin is Literal:
            return f"Literal[{', '.join(map(repr, arguments))}]"
        if isinstance(annotation, EnumType):
            values = [member.value for member in annotation]  # type: ignore[var-annotated]
            return f"{annotation.__name__}{values}"
        if origin is not None:
            spelled = ["..." if each is Ellipsis else self.spell(each) for each in arguments]
            return f"{origin.__name__}[{', '.join(spelled)}]"
        if dataclasses.is_dataclass(annotation):
            return self._named(annotation)
        return "Path" if issubclass(annotation, PurePath) else str(annotation.__name__)

    def _union(self, members: Sequence[Any]) -> str:
        spelled = [self.spell(member) for member in members]
        classes = [(name, cls) for name, cls in zip(spelled, members, strict=True) if dataclasses.is_dataclass(cls)]
        if len(classes) > 1:
            tag = tag_of([(name, tags_of(cls, _hints(cls))) for name, cls in classes])
            self.tags |= {(name, tag) for name, _ in classes}
        return " | ".join(spelled)

    def _named(self, cls: Any) -> str:
        if cls in self._names:
            return self._names[cls]
        name, number = cls.__name__, 2
        while name in self.shapes:  # another class of the same name
            name, number = f"{cls.__name__}_{number}", number + 1
        self._names[cls] = name
        self.shapes[name] = {}  # before its fields, whose types may refer to the class itself
        hints = _hints(cls)
        self.shapes[name] = {
            field.name: {"type": self.spell(hints[field.name]), "default": _default(field)}
            for field in dataclasses.fields(cls)
            if CARRIER not in field.metadata
        }
        return str(name)


def _hints(cls: Any) -> dict[str, Any]:
    return typing.get_type_hints(cls, include_extras=True)


def _default(field: dataclasses.Field[Any]) -> str:
    if field.default is not dataclasses.MISSING:
        return repr(field.default)
    if field.default_factory is dataclasses.MISSING:
        return "required"
    if field.default_factory in (list, dict, set, tuple, frozenset):
        return repr(field.default_factory())
    return "made by " + getattr(field.default_factory, "__qualname__", "a factory")  # it may make another each time


def _fit(old: ast.expr, new: ast.expr) -> bool:
    news = _members(new)
    return all(any(_fit_one(each, other) for other in news) for each in _members(old))


def _fit_one(old: ast.expr, new: ast.expr) -> bool:
    if ast.dump(old) == ast.dump(new):
        return True
    old_head, old_items = _parts(old)
    new_head, new_items = _parts(new)
    if new_head == "Any":
        return True
    if not old_head:  # one choice
        chosen = ast.literal_eval(old)
        return new_head == type(chosen).__name__ or (new_head == "float" and type(chosen) is int)
    if not new_items:
        return (
            (new_head == "float" and old_head == "int")
            or (new_head == "int" and old_head == "timedelta")
            or (new_head == "str" and old_head in TEXTS)
            or (new_head == "dict" and old_head == "dict")
            or (new_head == "list" and old_head in LISTS)
        )
    if old_head in LISTS and new_head in LISTS and new_head != FIXED:
        twice = new_head in SETS and old_head not in SETS  # a list may hold a value twice
        return bool(old_items) and not twice and all(_fit(item, new_items[0]) for item in old_items)
    same = old_head == new_head and len(old_items) == len(new_items)
    return same and all(_fit(*pair) for pair in zip(old_items, new_items, strict=True))


def _members(node: ast.expr) -> list[ast.expr]:
    """The members of a union, each choice of a Literal or enum on its own."""
    if isinstance(node, ast.BinOp):
        return [*_members(node.left), *_members(node.right)]
    head, items = _parts(node)
    return items if items and head not in (*LISTS, "dict") else [node]


def _parts(node: ast.expr) -> tuple[str, list[ast.expr]]:
    """The name of a type and its arguments; "" for a choice."""
    if isinstance(node, ast.Subscript):
        head = ast.unparse(node.value)
        items = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
        if head != "tuple":
            return head, items
        return ("tuple", items[:1]) if ast.unparse(items[-1]) == "..." else (FIXED, items)
    return (node.id if isinstance(node, ast.Name) else ""), []
