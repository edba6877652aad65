"""Typed access to the fields of API objects. Errors name the field and never quote its value."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def text(item: Mapping[str, Any], field: str) -> str:
    """A required string. Raises KeyError or TypeError."""
    value = item[field]
    if not isinstance(value, str):
        raise TypeError(f"{field} is not a string")
    return value


def texts(item: Mapping[str, Any], field: str) -> list[str]:
    """A list of strings, empty if the field is missing."""
    values = _list(item, field)
    if not all(isinstance(value, str) for value in values):
        raise TypeError(f"{field} is not a list of strings")
    return values


def mappings(item: Mapping[str, Any], field: str) -> list[Mapping[str, Any]]:
    """A list of objects, empty if the field is missing."""
    values = _list(item, field)
    if not all(isinstance(value, Mapping) for value in values):
        raise TypeError(f"{field} is not a list of objects")
    return values


def _list(item: Mapping[str, Any], field: str) -> list[Any]:
    values = item.get(field)
    if values is None:
        return []
    if not isinstance(values, list):
        raise TypeError(f"{field} is not a list")
    return values
