"""Types that could not be stored and given back are refused when the schema is made, not at the first write."""

from __future__ import annotations

import typing
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import InitVar, dataclass, field
from datetime import date, timedelta
from decimal import Decimal
from enum import Enum, Flag, IntEnum, StrEnum
from ipaddress import IPv4Address, IPv4Network, IPv6Address
from pathlib import Path, PurePath, PureWindowsPath
from typing import Any, ClassVar, Generic, Literal, NamedTuple, TypedDict, TypeVar
from uuid import UUID

import pytest

from checkpointmanager import Schema

from .files import loaded, stored

T = TypeVar("T")


class Pair(NamedTuple):
    x: int


class Options(TypedDict):
    x: int


class Bits(Flag):
    A = 1


class Ratio(Enum):
    HALF = 0.5


class Level(IntEnum):
    LOW = 1


class Mixed(Enum):
    ONE = 1
    TWO = "1"


class Colour(StrEnum):
    RED = "red"


@dataclass
class A:
    x: int = 0


@dataclass
class B:
    x: int = 0


@dataclass
class Deep:
    a: dict[str, list[tuple[int, complex]]]


@dataclass
class Hidden:
    x: int = field(default=1, init=False)


@dataclass
class WithInitVar:
    x: int
    scale: InitVar[int] = 1


class OwnInit(A):
    def __init__(self) -> None:
        super().__init__(3)


@dataclass
class Box(Generic[T]):
    content: T


@pytest.mark.parametrize(
    ("cls", "says"),
    [
        (bytearray, "bytearray cannot be stored"),
        (complex, "complex cannot be stored"),
        (tuple, "tuple cannot be stored"),
        (set, "set cannot be stored"),
        (date, "date cannot be stored"),
        (Decimal, "Decimal cannot be stored"),
        (PureWindowsPath, "PureWindowsPath cannot be stored"),
        (Pair, "Pair cannot be stored"),
        (Options, "Options cannot be stored"),
        (Bits, "Bits cannot be stored"),
        (OrderedDict, "OrderedDict cannot be stored"),
        (OrderedDict[str, int], "cannot be stored"),
        (Sequence[int], "cannot be stored"),
        (Mapping[str, int], "cannot be stored"),
        (Callable[[], int], "cannot be stored"),
        (T, "cannot be stored"),
        (Box[int], "cannot be stored"),
        (Box, "Box.content: ~T cannot be stored"),
        (Ratio, "only text, integers, booleans and None can be choices"),
        (Literal[b"x"], "only text, integers, booleans and None can be choices"),
        (Literal[Colour.RED], "only text, integers, booleans and None can be choices"),
        (dict[float, str], "JSON keys are text"),
        (dict[bool, str], "JSON keys are text"),
        (dict[int | str, str], "JSON keys are text"),
        (dict[int | None, str], "JSON keys are text"),
        (dict[Literal[1, "1"], str], "JSON keys are text"),
        (dict[Literal[True], str], "JSON keys are text"),
        (dict[Mixed, str], "JSON keys are text"),
        (dict[Ratio, str], "only text, integers, booleans and None can be choices"),
        (dict[A, str], "JSON keys are text"),
        (dict[str | None, str], "JSON keys are text"),
        (A | B, "look alike in JSON"),
        (A | dict[str, int], "look alike in JSON"),
        (list[int] | set[int], "look alike in JSON"),
        (str | UUID, "look alike in JSON"),
        (IPv4Address | IPv4Network, "look alike in JSON"),
        (IPv4Address | IPv6Address | IPv4Network, "look alike in JSON"),
        (IPv4Address | IPv6Address | str, "look alike in JSON"),
        (str | bytes, "look alike in JSON"),
        (int | timedelta, "look alike in JSON"),
        (Path | PurePath, "look alike in JSON"),
        (str | Colour, "look alike in JSON"),
        (int | Level, "look alike in JSON"),
        (str | Literal["a"], "cannot be distinguished by type"),
        (int | Literal[1], "cannot be distinguished by type"),
        (list[int] | list[str], "cannot be distinguished by type"),
        (Any | list[int], "cannot be distinguished by type"),
        (Deep, "Deep.a[][][1]: complex cannot be stored"),
        (Hidden, "Hidden: its __init__ takes arguments other"),
        (WithInitVar, "WithInitVar: its __init__ takes arguments other"),
        (OwnInit, "OwnInit: its __init__ takes arguments other"),
    ],
    ids=str,
)
def test_a_type_that_cannot_be_stored_is_refused_at_once(cls: Any, says: str) -> None:
    with pytest.raises(TypeError) as caught:
        Schema("Value", type=cls)
    assert says in str(caught.value)
    assert "encode=" in str(caught.value)


def test_a_name_that_cannot_be_found_is_refused_at_once() -> None:
    @dataclass
    class Local:
        other: Nowhere  # type: ignore[name-defined]  # noqa: F821

    with pytest.raises(TypeError, match="Local: name 'Nowhere' is not defined"):
        Schema("Value", type=Local)


@dataclass
class Counted:
    instances: ClassVar[list[int]] = []
    x: int = 0


@dataclass
class Child(A):
    y: int = 0
    z: int = field(default=0, kw_only=True)


@pytest.mark.parametrize(
    ("cls", "value"),
    [
        (Counted, Counted(1)),
        (Child, Child(1, 2, z=3)),
        (typing.List, [1]),  # noqa: UP006
        (typing.Dict, {"a": 1}),  # noqa: UP006
        (typing.List[int], [1]),  # noqa: UP006
        (typing.Optional[int], None),  # noqa: UP045
        (A | None, A(1)),
        (str | None, None),
        (int | list[int], [1]),
        (Any | None, {"a": 1}),
        (object, [1]),
        (None, None),
        (typing.Annotated[int, "metres"], 7),
        (tuple[int, str] | None, (1, "a")),
        (dict | None, {"a": 1}),
        (float | int, 1),
        (float | int, 1.0),
    ],
    ids=str,
)
def test_a_type_that_can_be_stored_is_taken(cls: Any, value: Any) -> None:
    schema = Schema("Value", type=cls) if cls is not None else Schema("Value", type=type(None))
    back = loaded(schema, stored(schema, value))
    assert back == value
    assert type(back) is type(value)


@pytest.mark.parametrize("kind", ["", "two words", "ä", "-x", "x/", "a" * 201, 'a"b', "a\n"])
def test_a_kind_that_is_no_name_is_refused(kind: str) -> None:
    with pytest.raises(ValueError, match="schema kind"):
        Schema(kind)


@pytest.mark.parametrize(
    ("version", "readable_by", "migrations", "says"),
    [
        (0, None, {}, "versions are integers from 1"),
        (-1, None, {}, "versions are integers from 1"),
        (True, None, {}, "versions are integers from 1"),
        (1.0, None, {}, "versions are integers from 1"),
        (2, 0, {}, "readable_by must be between 1 and version 2"),
        (2, 3, {}, "readable_by must be between 1 and version 2"),
        (2, True, {}, "readable_by must be between 1 and version 2"),
        (2, None, {2: str}, "migrations start from versions 1 to 1"),
        (2, None, {0: str}, "migrations start from versions 1 to 1"),
        (2, None, {"1": str}, "migrations start from versions 1 to 1"),
        (3, None, {True: str}, "migrations start from versions 1 to 2"),
    ],
)
def test_versions_that_make_no_sense_are_refused(version: Any, readable_by: Any, migrations: Any, says: str) -> None:
    with pytest.raises(ValueError, match=f"^schema Lease: {says}$"):
        Schema("Lease", version, readable_by=readable_by, migrations=migrations)


@pytest.mark.parametrize("given", [{"encode": str}, {"decode": str}, {"type": A, "encode": str, "decode": str}])
def test_a_type_and_a_pair_of_functions_exclude_each_other(given: Any) -> None:
    with pytest.raises(TypeError, match="either type=, or encode= and decode= together"):
        Schema("Lease", **given)
