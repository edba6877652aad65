"""Copies of JSON values, so that nobody changes what somebody else holds."""

from __future__ import annotations

from typing import Any

from checkpointmanager import UnstorableValue


def copied(value: Any) -> Any:
    """A copy of a JSON value. What is no JSON passes as it is and is refused when it is written."""
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
