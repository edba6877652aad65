"""Copies JSON values, so that a caller cannot change a value that another object holds."""

from __future__ import annotations

from typing import Any

from checkpointmanager import UnstorableValue


def copied(value: Any) -> Any:
    """A copy of a JSON value. Any other value is passed through and refused when it is written."""
    try:
        return _copy(value)
    except RecursionError:
        raise UnstorableValue("$", "is nested too deeply, or contains itself") from None


def _copy(value: Any) -> Any:
    if type(value) is dict:
        return {name: _copy(member) for name, member in value.items()}
    if type(value) is list:
        return [_copy(member) for member in value]
    return value
