"""Freezes the persisted shape of a schema in a file: a test then fails for a change that old files would not survive.

The shape is what files hold: the fields of the dataclasses with their types and defaults. Names of classes, docstrings,
methods and the order of fields are not part of it.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from enum import StrEnum
from typing import Any, NamedTuple

from . import Schema
from .shapes import Shapes, fit, shapes_of, with_names


class BaselineChanged(AssertionError):
    """The persisted shape of a schema is not the frozen one. Follow the last line of the message.

    changes  one line for each change: the field, what has changed, and what that means for files already written
    breaks   True if the baseline must not be written again before the schema has a new version or a migration
    """

    def __init__(self, message: str, changes: tuple[str, ...] = (), *, breaks: bool = False) -> None:
        super().__init__(message)
        self.changes = changes
        self.breaks = breaks


def check_baseline(schema: Schema[Any], path: str | os.PathLike[str], *, update: bool = False) -> None:
    """Raise BaselineChanged unless the persisted shape of a schema is the one frozen in the file at `path`.

    With `update` it writes the file instead, if that is safe: the file is new, or every change is harmless to files
    already written, or the schema has a new version and the migration that the changes need. The schema needs a
    `type=`; the shape of encode= and decode= cannot be seen.
    """
    if schema.type is None:
        raise TypeError(f"schema {schema.kind}: has no type=, so its shape cannot be frozen")
    present = {"kind": schema.kind, "version": schema.version, **shapes_of(schema.type)}
    frozen = _read(path)
    if frozen == present:
        return
    problem = _problem(schema, frozen, present, os.fspath(path)) if frozen else None
    if update and (problem is None or not problem.breaks):
        _write(path, present)
        return
    raise problem or BaselineChanged(f"{os.fspath(path)}: there is no baseline yet. {_WRITE}")


class _Effect(StrEnum):
    """What a change means for files already written."""

    NONE = "files already written load as before"
    OLDER = "files already written load, but programs with the frozen shape cannot read new ones"
    LOST = "files already written load, but what they hold there is no longer read"
    BREAK = "files already written do not load"


class _Change(NamedTuple):
    where: str
    what: str
    effect: _Effect

    def __str__(self) -> str:
        return f"{self.where}: {self.what}; {self.effect}"


_WRITE = "Call check_baseline once with update=True, and commit the file that it writes"


def _problem(schema: Schema[Any], frozen: dict[str, Any], present: dict[str, Any], path: str) -> BaselineChanged:
    if frozen["kind"] != schema.kind:
        what = f"it is the baseline of kind {frozen['kind']}, and the schema is of kind {schema.kind}"
        return BaselineChanged(f"{path}: {what}. Give each schema a file of its own", breaks=True)
    old, new = frozen["version"], schema.version
    if new < old:
        what = f"it has version {old} of {schema.kind}, and the schema has version {new}"
        return BaselineChanged(f"{path}: {what}. Give the schema version {old} or a later one", breaks=True)
    changes = [*_changes(frozen, present)]
    harmful = [change for change in changes if change.effect is not _Effect.NONE]
    unread = [change for change in changes if change.effect is _Effect.BREAK]
    migrated = any(old <= step < new for step in schema._migrations)
    if not harmful or (new > old and (migrated or not unread)):
        advice, breaks = _WRITE, False
    elif new > old:
        advice, breaks = f"Add a migration from version {old} to the schema, then write the baseline again", True
    else:
        step = f" with a migration from version {old}" if any(c.effect is not _Effect.OLDER for c in harmful) else ""
        advice, breaks = f"Give the schema version {old + 1}{step}, then write the baseline again", True
        advice += f". If no release has written version {old}, delete the baseline and write it again"
    subject = f"{schema.kind} version {old}" if new == old else f"{schema.kind} from version {old} to {new}"
    lines = [f"  {change}" for change in changes] or ["  nothing but the version"]
    message = "\n".join([f"{path}: the persisted shape of {subject} has changed:", *lines, f"{advice}."])
    return BaselineChanged(message, tuple(map(str, changes)), breaks=breaks)


def _changes(frozen: dict[str, Any], present: dict[str, Any]) -> Iterator[_Change]:
    """Each difference between two shapes, class by class."""
    frozen = with_names(frozen, present["classes"])
    before: Shapes = frozen["classes"]
    now: Shapes = present["classes"]
    if frozen["type"] != present["type"]:
        yield _of_types(f"the type of {present['kind']}", frozen["type"], present["type"])
    for name in [each for each in now if each in before]:
        yield from _of_fields(name, before[name], now[name])


def _of_fields(name: str, before: dict[str, dict[str, str]], now: dict[str, dict[str, str]]) -> Iterator[_Change]:
    gone = [field for field in before if field not in now]
    came = [field for field in now if field not in before]
    for field in gone:
        alike = [other for other in came if now[other]["type"] == before[field]["type"]]
        renamed = f", or renamed to {alike[0]}" if len(alike) == 1 else ""
        yield _Change(f"{name}.{field}", f"removed{renamed}", _Effect.LOST)
    for field in came:
        required = now[field]["default"].startswith("required")
        what = f"added as {now[field]['type']}, {'without a default' if required else 'with a default'}"
        yield _Change(f"{name}.{field}", what, _Effect.BREAK if required else _Effect.NONE)
    for field in [each for each in now if each in before]:
        old, new = before[field], now[field]
        if old["type"] != new["type"]:
            yield _of_types(f"{name}.{field}", old["type"], new["type"])
        if old["default"] != new["default"]:
            lost = new["default"].startswith("required")
            what = f"default changed from {old['default']} to {new['default']}"
            yield _Change(f"{name}.{field}", what, _Effect.BREAK if lost else _Effect.NONE)


def _of_types(where: str, old: str, new: str) -> _Change:
    wider = _Effect.NONE if fit(new, old) else _Effect.OLDER
    effect = wider if fit(old, new) else _Effect.BREAK
    return _Change(where, f"changed from {old} to {new}", effect)


def _read(path: str | os.PathLike[str]) -> dict[str, Any] | None:
    try:
        with open(path, encoding="utf-8") as file:
            frozen: dict[str, Any] = json.load(file)
    except FileNotFoundError:
        return None
    return frozen


def _write(path: str | os.PathLike[str], present: dict[str, Any]) -> None:
    with open(path, "w", encoding="utf-8") as file:
        file.write(json.dumps(present, indent=2) + "\n")
