"""The options of a directory, and the checks of every argument of a manager and a store.

A wrong argument is refused at once and by name, before it can break something later.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any, Literal, TypedDict

from ._errors import InvalidKey
from ._metricssink import MetricsSink
from ._schema import Schema
from ._store import is_store
from .format import is_key

LARGEST_BYTES = 512 << 20  # of one file: a journal must have room for it, and be read as a whole


class FileOptions(TypedDict, total=False):
    """How a directory is opened, and what receives its figures; see CheckpointManager."""

    sharing: bool  # take the lock around each write instead of for life
    read_only: bool  # take no lock and refuse to write
    durability: Literal["full", "atomic"]  # "full" is the default
    owner: str  # a label shown to processes that find the directory locked
    lock_timeout: float  # seconds to wait for the lock
    allow_insecure: bool  # accept a directory that other users could write to
    max_bytes: int  # the limit for one file
    metrics: MetricsSink | None  # such as a CheckpointMetrics


def check_arguments(
    directory: object, schema: object, on_event: object, boot_id: object, options: Mapping[str, Any]
) -> None:
    """Check the arguments of a manager; `options` are those of its directory."""
    if isinstance(directory, str | os.PathLike) or not is_store(directory):
        check_path(directory)
    elif refused := [name for name in ("sharing", "read_only", "max_bytes") if options.get(name)]:
        raise ValueError(f"{refused[0]} is an option of a directory; a Store decides that itself")
    check_options(options)
    if schema is not None and not isinstance(schema, Schema):
        raise TypeError(f"schema must be a Schema, not {_given(schema)}")
    if on_event is not None and not callable(on_event):
        raise TypeError(f"on_event must be a function that takes an Event, not {_given(on_event)}")
    if boot_id is not None and not isinstance(boot_id, str):
        raise TypeError(f"boot_id must be a str, not {_given(boot_id)}")


def check_key(key: str) -> str:
    """Return `key` if it may name a checkpoint; otherwise raise InvalidKey."""
    if is_key(key):
        return key
    raise InvalidKey(key)


def check_path(path: object) -> None:
    name = os.fspath(path) if isinstance(path, str | os.PathLike) else path
    if not isinstance(name, str):
        raise TypeError(
            f"the directory must be a str, a path or a Store, not {_given(name)}; "
            "to keep nothing on disk use MemoryStore()"
        )
    if not name:
        raise ValueError("the directory is an empty path; write '.' if you mean the working directory")
    if "\0" in name:
        raise ValueError(f"the directory {name!r} has a NUL character, which no path can have")


def check_options(options: Mapping[str, object]) -> None:
    """Check the options of a directory."""
    for name, value in options.items():
        if name not in _OPTIONS:
            raise TypeError(f"{name} is not an option; the options are {', '.join(_OPTIONS)}")
        _OPTIONS[name](name, value)
    if options.get("sharing") and options.get("read_only"):
        raise ValueError("read_only takes no lock, so there is nothing to share: pass only one of the two")


def _is_bool(name: str, value: object) -> None:
    if not isinstance(value, bool):
        raise TypeError(f"{name} must be True or False, not {_given(value)}")


def _is_str(name: str, value: object) -> None:
    if not isinstance(value, str):
        raise TypeError(f"{name} must be a str, not {_given(value)}")


def _is_durability(name: str, value: object) -> None:
    if value not in ("full", "atomic"):
        raise ValueError(f"{name} must be 'full' or 'atomic', not {_given(value)}")


def _is_seconds(name: str, value: object) -> None:
    if value is None:  # the default
        return
    if not isinstance(value, int | float) or isinstance(value, bool):
        raise TypeError(f"{name} must be a number of seconds, 0 or more, not {_given(value)}")
    if not value >= 0:  # refuses NaN too
        raise ValueError(f"{name} must be a number of seconds, 0 or more, not {_given(value)}")


def _is_size(name: str, value: object) -> None:
    if not isinstance(value, int) or isinstance(value, bool):
        raise TypeError(f"{name} must be a number of bytes, 1 or more, not {_given(value)}")
    if not 1 <= value <= LARGEST_BYTES:
        raise ValueError(f"{name} must be a number of bytes, from 1 to {LARGEST_BYTES}, not {_given(value)}")


_OPTIONS: dict[str, Callable[[str, object], None]] = {
    "sharing": _is_bool,
    "read_only": _is_bool,
    "durability": _is_durability,
    "owner": _is_str,
    "lock_timeout": _is_seconds,
    "allow_insecure": _is_bool,
    "max_bytes": _is_size,
    "metrics": lambda _, __: None,
}


def _given(value: object) -> str:
    """Describes an argument, but never shows data that was passed by mistake."""
    if value is None or isinstance(value, bool | int | float):
        return repr(value)
    if isinstance(value, str):
        return repr(value) if len(value) <= 20 else f"a str of {len(value)} characters"
    if isinstance(value, type):
        return f"the class {value.__name__}"
    return f"a {type(value).__name__}"
