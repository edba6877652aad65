"""Typed values: what was stored is read back unchanged, and a file holds it in one spelling."""

from __future__ import annotations

import re
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta, timezone
from enum import Enum, IntEnum, StrEnum
from ipaddress import IPv4Address, IPv4Interface, IPv4Network, IPv6Address, IPv6Interface, IPv6Network
from pathlib import Path, PurePath, PurePosixPath
from typing import Annotated, Any, Literal, NewType
from uuid import UUID

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from checkpointmanager import Schema, SchemaMismatch

from .files import loaded, stored
from .test_jsonvalues import exactly, json_values, text

Name = NewType("Name", str)
Number = NewType("Number", int)


class Colour(StrEnum):
    RED = "red"
    BLUE = "blue"


class Level(IntEnum):
    LOW = 1
    HIGH = 10


class Digit(Enum):
    ZERO = 0
    MINUS_ONE = -1


class Shape(Enum):
    ROUND = "o"
    FLAT = None
    SOLID = True
    THIN = 7


@dataclass(frozen=True, slots=True)
class Device:
    pool: str
    share: UUID | None = None
    cdi: tuple[str, ...] = ()


@dataclass
class Node:
    name: str
    below: list[Node] = field(default_factory=list)
    parent_of: dict[str, Node] | None = None


@dataclass(frozen=True)
class Claim:
    uid: UUID
    drivers: dict[Name, list[Device]]
    written: datetime
    colour: Colour = Colour.RED
    held: frozenset[Device] = field(default=frozenset(), kw_only=True)


devices = st.builds(Device, text, st.none() | st.uuids(), st.lists(text, max_size=3).map(tuple))
integers = st.integers(-(2**63), 2**64 - 1)
floats = st.floats(allow_nan=False, allow_infinity=False)
moments = st.datetimes().map(lambda time: time.replace(fold=0))
far = st.timedeltas(timedelta(hours=-23), timedelta(hours=23)).filter(lambda far: abs(far) >= timedelta(seconds=1))
offsets = far.map(timezone) | st.just(UTC)
nodes: st.SearchStrategy[Node] = st.recursive(
    st.builds(Node, text, st.just([])),
    lambda below: st.builds(
        Node, text, st.lists(below, max_size=2), st.none() | st.dictionaries(text, below, max_size=2)
    ),
    max_leaves=6,
)
claims = st.builds(
    Claim,
    st.uuids(),
    st.dictionaries(text.map(Name), st.lists(devices, max_size=2), max_size=2),
    moments,
    st.sampled_from(Colour),
    held=st.frozensets(devices, max_size=3),
)
v4 = st.ip_addresses(v=4)
scopes = st.text(st.characters(categories=["L", "N"]), min_size=1, max_size=8)
v6 = st.ip_addresses(v=6) | v4.map(lambda address: IPv6Address(f"::ffff:{address}"))
scoped = st.builds(lambda address, scope: IPv6Address(f"{address}%{scope}"), v6, scopes)
paths = st.lists(text.filter(lambda part: "\0" not in part), max_size=4).map(lambda parts: PurePosixPath(*parts))
durations = st.timedeltas(timedelta(microseconds=-(2**63)), timedelta(microseconds=2**63))
AGENT_TYPES: dict[Any, st.SearchStrategy[Any]] = {
    IPv4Address: v4,
    IPv6Address: v6 | scoped,
    IPv4Network: st.builds(lambda ip, bits: IPv4Network((ip, bits), strict=False), v4, st.integers(0, 32)),
    IPv6Network: st.builds(lambda ip, bits: IPv6Network((ip, bits), strict=False), v6, st.integers(0, 128)),
    IPv4Interface: st.builds(lambda ip, bits: IPv4Interface((ip, bits)), v4, st.integers(0, 32)),
    IPv6Interface: st.builds(lambda ip, bits: IPv6Interface(f"{ip}/{bits}"), v6 | scoped, st.integers(0, 128)),
    Path: paths.map(Path),
    PurePath: paths.map(PurePath),
    PurePosixPath: paths,
    timedelta: durations,
    bytes: st.binary(),
}


def in_every_shape(cls: Any, values: st.SearchStrategy[Any]) -> tuple[Any, st.SearchStrategy[Any]]:
    """As a value, in a list and as a key."""
    return tuple[cls, list[cls], dict[cls, int]], values.map(lambda value: (value, [value, value], {value: 1}))


VALUES: list[tuple[Any, st.SearchStrategy[Any]]] = [
    (str, text),
    (bool, st.booleans()),
    (int, integers),
    (float, floats),
    (int | float, integers | floats),
    (type(None), st.none()),
    (datetime, moments),
    (datetime, st.builds(datetime.replace, moments, tzinfo=offsets)),
    (UUID, st.uuids()),
    (Colour, st.sampled_from(Colour)),
    (Level, st.sampled_from(Level)),
    (Shape, st.sampled_from(Shape)),
    (Literal["fast", 1, True, None], st.sampled_from(["fast", 1, True, None])),
    (Name, text.map(Name)),
    (Annotated[str, "at most 10"], text),
    (list[int], st.lists(integers)),
    (list[float], st.lists(floats)),
    (tuple[str, ...], st.lists(text).map(tuple)),
    (tuple[()], st.just(())),
    (tuple[int, Device], st.tuples(integers, devices)),
    (dict[str, list[bool]], st.dictionaries(text, st.lists(st.booleans()))),
    (dict[Colour, int], st.dictionaries(st.sampled_from(Colour), integers)),
    (dict[UUID, Device], st.dictionaries(st.uuids(), devices, max_size=3)),
    (dict[datetime, int], st.dictionaries(moments, integers, max_size=3)),
    (dict[str, None], st.dictionaries(text, st.none())),
    (dict[int, str], st.dictionaries(integers, text)),
    (dict[Number, Device], st.dictionaries(integers.map(Number), devices, max_size=3)),
    (dict[Level, int], st.dictionaries(st.sampled_from(Level), integers)),
    (dict[Digit, int], st.dictionaries(st.sampled_from(Digit), integers)),
    (dict[Literal[-1, 0, 7], bool], st.dictionaries(st.sampled_from([-1, 0, 7]), st.booleans())),
    (dict[Literal["a", "b"], bool], st.dictionaries(st.sampled_from(["a", "b"]), st.booleans())),
    (
        dict[int, dict[int, list[int]]],
        st.dictionaries(integers, st.dictionaries(integers, st.lists(integers), max_size=3)),
    ),
    (set[str], st.sets(text)),
    (frozenset[int], st.frozensets(integers)),
    (set[str | float | None], st.sets(text | floats | st.none())),
    (frozenset[Device], st.frozensets(devices, max_size=3)),
    (int | str | list[int] | Device | None, integers | text | st.lists(integers) | devices | st.none()),
    (Device, devices),
    (Node, nodes),
    (Claim, claims),
    (Any, json_values),
    (Any | None, json_values),
    (list, st.lists(json_values, max_size=3)),
    (dict[str, Any], st.dictionaries(text, json_values, max_size=3)),
    (dict, st.dictionaries(text, json_values, max_size=3)),
    *(in_every_shape(cls, values) for cls, values in AGENT_TYPES.items()),
    in_every_shape(IPv4Address | IPv6Address, v4 | v6 | scoped),
    (IPv6Network | IPv4Network | None, AGENT_TYPES[IPv4Network] | AGENT_TYPES[IPv6Network] | st.none()),
    (IPv4Interface | IPv6Interface | int, AGENT_TYPES[IPv4Interface] | AGENT_TYPES[IPv6Interface] | integers),
]


@pytest.mark.parametrize(("cls", "values"), VALUES, ids=[str(cls).split("checkpointmanager.")[-1] for cls, _ in VALUES])
def test_a_value_comes_back_as_it_was(cls: Any, values: st.SearchStrategy[Any]) -> None:
    """59 types, 30 values of each."""
    schema = Schema("Value", type=cls)

    @given(values)
    @settings(max_examples=30)
    def round_trip(value: Any) -> None:
        data = stored(schema, value)
        back = loaded(schema, data)
        assert back == value
        assert type(back) is type(value)
        assert stored(schema, back) == data
        if cls is not Claim and "set" not in str(cls):  # a set shows its elements in any order
            assert exactly(back) == exactly(value)

    round_trip()


# What a file holds never depends on the version of Python: 3.13 writes the last address differently from 3.12.
SPELLED: list[tuple[Any, Any, Any]] = [
    (IPv4Address, IPv4Address("10.0.0.7"), "10.0.0.7"),
    (IPv4Network, IPv4Network("10.0.0.0/8"), "10.0.0.0/8"),
    (IPv4Interface, IPv4Interface("10.0.0.7/8"), "10.0.0.7/8"),
    (IPv6Address, IPv6Address("FE80:0::7%eth0"), "fe80::7%eth0"),
    (IPv6Network, IPv6Network("fd00::/64"), "fd00::/64"),
    (IPv6Interface, IPv6Interface("fd00::7/64"), "fd00::7/64"),
    (IPv6Address, IPv6Address("::ffff:102:304"), "::ffff:1.2.3.4"),
    (IPv6Network, IPv6Network("::ffff:102:300/120"), "::ffff:1.2.3.0/120"),
    (IPv6Interface, IPv6Interface("::ffff:102:304%eth0/120"), "::ffff:1.2.3.4%eth0/120"),
    (IPv6Address, IPv6Address("::102:304"), "::102:304"),
    (IPv6Address, IPv6Address("::ffff:1:2:3"), "::ffff:1:2:3"),
    (Path, Path("/var//lib/./agent/"), "/var/lib/agent"),
    (PurePosixPath, PurePosixPath("a/../b"), "a/../b"),
    (PurePath, PurePath(), "."),
    (timedelta, timedelta(days=1, microseconds=-1), 86_399_999_999),
    (timedelta, timedelta(seconds=-1), -1_000_000),
    (bytes, b"\xff\x00", "/wA="),
    (bytes, b"", ""),
    (float, 3, 3.0),
    (set[str], {"c", "a", "b"}, ["a", "b", "c"]),  # the same set gives the same bytes
    (set[int], {10, 9, -1}, [-1, 9, 10]),
    (dict[Level, bool], {Level.HIGH: True}, {"10": True}),
    (dict[int, int], {0: 0, -1: 1, 2**64 - 1: 2}, {"0": 0, "-1": 1, "18446744073709551615": 2}),  # as Go spells them
]


@pytest.mark.parametrize(("cls", "value", "plain"), SPELLED)
def test_what_the_file_holds(cls: Any, value: Any, plain: Any) -> None:
    assert exactly(orjson.loads(stored(Schema("Value", type=cls), value))) == exactly(plain)


def test_an_integer_is_read_as_the_float_that_is_declared() -> None:
    assert exactly(loaded(Schema("F", type=float), b"3")) == "3.0"


@given(text, st.sampled_from(list(AGENT_TYPES)))
def test_what_is_read_is_written_the_same(plain: str, cls: Any) -> None:
    data, schema = orjson.dumps(plain), Schema("Value", type=cls)
    with suppress(SchemaMismatch):  # text that is no spelling of a value
        assert stored(schema, loaded(schema, data)) == data


PAGE = Path(__file__).parents[3] / "tools" / "docs" / "guides" / "schemas.md"


@pytest.mark.parametrize("cls", AGENT_TYPES, ids=lambda cls: cls.__name__)
def test_the_page_about_schemas_shows_the_form_in_the_file(cls: Any) -> None:
    (row,) = [line for line in PAGE.read_text().splitlines() if line.startswith("|") and f"`{cls.__name__}`" in line]
    _, _, forms, _ = row.split("|")
    read = []
    for form in re.findall("`([^`]+)`", forms):
        with suppress(SchemaMismatch):  # a row shows two types side by side
            read.append(loaded(Schema("Value", type=cls), form.encode()))
    assert read
