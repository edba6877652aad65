"""Data without a schema: a value that JSON returns unchanged is stored, anything else is refused with its place."""

from __future__ import annotations

import math
from collections import OrderedDict, UserString, defaultdict
from datetime import UTC, datetime
from enum import IntEnum, StrEnum
from typing import Any, NamedTuple
from uuid import UUID

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from checkpointmanager import Schema

from ...long import times
from .files import loaded, refusal, stored

ANY = Schema("JSON")
MAX_DEPTH = 200

text = st.text(st.characters(exclude_categories=["Cs"]))
scalars = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | text
)
json_values = st.recursive(scalars, lambda below: st.lists(below) | st.dictionaries(text, below), max_leaves=15)


def exactly(value: Any) -> str:
    """Distinguishes 1, 1.0 and True, and 0.0 from -0.0, which == does not."""
    return repr(value)


@given(json_values)
@settings(max_examples=times(100, 300))
@example([2**64 - 1, -(2**63), 1, 1.0, True, 0.0, -0.0, 5e-324, 1.7976931348623157e308, 1e16, "\u2028\0\U0010ffff"])
def test_json_data_comes_back_as_it_was(value: Any) -> None:
    assert exactly(loaded(ANY, stored(ANY, value))) == exactly(value)


class Colour(StrEnum):
    RED = "red"


class Level(IntEnum):
    LOW = 1


class Point(NamedTuple):
    x: int


class Text(str):
    __slots__ = ()


UNSTORABLE: list[tuple[Any, str]] = [
    (math.nan, "not a finite number"),
    (math.inf, "not a finite number"),
    (-math.inf, "not a finite number"),
    (2**64, "an integer beyond 64 bits"),
    (-(2**63) - 1, "an integer beyond 64 bits"),
    (10**400, "an integer beyond 64 bits"),
    ("\ud800", "a lone surrogate"),
    ("ab\udfff", "a lone surrogate"),
    (b"bytes", "of type bytes"),
    (bytearray(b"b"), "of type bytearray"),
    ((1, 2), "of type tuple"),
    (Point(1), "of type Point"),
    ({1}, "of type set"),
    (frozenset({1}), "of type frozenset"),
    (Colour.RED, "of type Colour"),
    (Level.LOW, "of type Level"),
    (Text("a"), "of type Text"),
    (UserString("a"), "of type UserString"),
    (OrderedDict(a=1), "of type OrderedDict"),
    (defaultdict(list), "of type defaultdict"),
    (1j, "of type complex"),
    (datetime(2026, 1, 1, tzinfo=UTC), "of type datetime"),
    (UUID(int=1), "of type UUID"),
    (object(), "of type object"),
    ({1: 2}, "a key of type int"),
    ({None: 2}, "a key of type NoneType"),
    ({True: 2}, "a key of type bool"),
    ({Colour.RED: 2}, "a key of type Colour"),
    ({"\ud800": 2}, "a key that holds a lone surrogate"),
]


@pytest.mark.parametrize(("value", "why"), UNSTORABLE, ids=[repr(value)[:20] for value, _ in UNSTORABLE])
@pytest.mark.parametrize("shape", ["$", "$[1]", "$[*]", "$[*][0][*][2]"])
def test_what_json_would_change_is_refused_with_its_place(value: Any, why: str, shape: str) -> None:
    whole = {
        "$": value,
        "$[1]": [None, value],
        "$[*]": {"a": value},
        "$[*][0][*][2]": {"z": [1.5], "a": [{"b": ["x", 1, value]}]},
    }[shape]
    error = refusal(ANY, whole)
    assert error.where == shape
    assert why in error.why


def nested(levels: int) -> Any:
    value: Any = []
    for level in range(levels):
        value = [value] if level % 2 else {"a": value}
    return value


def test_the_deepest_nesting_that_is_stored_comes_back() -> None:
    value = nested(MAX_DEPTH)
    assert loaded(ANY, stored(ANY, value)) == value


@pytest.mark.parametrize("levels", [MAX_DEPTH + 1, 260, 2000])
def test_what_is_nested_deeper_is_refused(levels: int) -> None:
    error = refusal(ANY, nested(levels))
    assert f"more than {MAX_DEPTH} levels" in error.why
    assert len(str(error)) < 250


def test_data_that_contains_itself_is_refused() -> None:
    circle: list[Any] = [1]
    circle.append(circle)
    ring: dict[str, Any] = {}
    ring["me"] = {"again": ring}
    assert "contains itself" in refusal(ANY, circle).why
    assert "contains itself" in refusal(ANY, ring).why


def test_an_object_in_two_places_is_no_circle() -> None:
    shared = [1]
    assert stored(ANY, [shared, shared]) == b"[[1],[1]]"
