"""Typed data: what was stored is read back unchanged, and a value of another type is refused with its place."""

from __future__ import annotations

import inspect
import math
import sys
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta, timezone
from enum import Enum, IntEnum, StrEnum
from typing import Annotated, Any, Literal, NewType
from uuid import UUID
from zoneinfo import ZoneInfo

import orjson
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from checkpointmanager import Schema, UnstorableValue
from checkpointmanager._schema import Misfit

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
    (dict[int, dict[int, list[int]]], st.dictionaries(integers, st.dictionaries(integers, st.lists(integers)))),
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
]


@pytest.mark.parametrize(("cls", "values"), VALUES, ids=[str(cls).split("checkpointmanager.")[-1] for cls, _ in VALUES])
def test_a_value_comes_back_as_it_was(cls: Any, values: st.SearchStrategy[Any]) -> None:
    """45 types, 50 values of each."""
    schema = Schema("Value", type=cls)

    @given(values)
    @settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.too_slow])
    def round_trip(value: Any) -> None:
        back, unknowns = schema.decode(schema.encode(value).json, 1, 1)
        assert back == value
        assert unknowns is None
        assert type(back) is type(value)
        if cls is not Claim and "set" not in str(cls):  # a set shows its elements in any order
            assert exactly(back) == exactly(value)

    round_trip()


@pytest.mark.parametrize("members", [["c", "a", "b"], ["b", "c", "a"]])
def test_the_same_set_gives_the_same_bytes(members: list[str]) -> None:
    assert Schema("S", type=set[str]).encode(set(members)).json == b'["a","b","c"]'


def test_a_set_of_numbers_is_stored_in_their_order() -> None:
    assert Schema("S", type=set[int]).encode({10, 9, -1}).json == b"[-1,9,10]"


def test_an_integer_where_a_float_is_declared_is_that_float() -> None:
    schema = Schema("F", type=float)
    assert schema.encode(3).json == b"3.0"
    assert exactly(schema.decode(b"3", 1, 1)[0]) == "3.0"


class Words(list[str]):
    pass


@dataclass(frozen=True, slots=True)
class SharedDevice(Device):
    pass


NEW_YORK = datetime(2026, 1, 1, tzinfo=ZoneInfo("America/New_York"))
DEVICE = Device("p")


@pytest.mark.parametrize(
    ("cls", "value", "where", "why"),
    [
        (int, True, "$", "is bool, not int"),
        (int, 1.0, "$", "is float, not int"),
        (bool, 1, "$", "is int, not bool"),
        (str, None, "$", "is NoneType, not str"),
        (str, Colour.RED, "$", "is Colour, not str"),
        (int, Level.LOW, "$", "is Level, not int"),
        (type(None), 0, "$", "is int, not NoneType"),
        (float, True, "$", "is bool, not float"),
        (float, math.nan, "$", "not a finite number"),
        (float, -math.inf, "$", "not a finite number"),
        (float, 2**53 + 1, "$", "is int, not float"),
        (int, 2**64, "$", "beyond 64 bits"),
        (list[int], [0, -(2**63) - 1], "$[1]", "beyond 64 bits"),
        (dict[str, int], {"a": 2**64}, "$[*]", "beyond 64 bits"),
        (list[str], ["a", "\ud800"], "$[1]", "a lone surrogate"),
        (dict[str, int], {"\ud800": 1}, "$", "a key that holds a lone surrogate"),
        (dict[str, int], {1: 1}, "$", "a key that is int, not str"),
        (dict[int, int], {"1": 1}, "$", "a key that is str, not int"),
        (dict[int, int], {True: 1}, "$", "a key that is bool, not int"),
        (dict[int, int], {1.0: 1}, "$", "a key that is float, not int"),
        (dict[int, int], {Level.LOW: 1}, "$", "a key that is Level, not int"),
        (dict[int, int], {2**64: 1}, "$", "a key that is an integer beyond 64 bits"),
        (dict[int, int], {-(2**63) - 1: 1}, "$", "a key that is an integer beyond 64 bits"),
        (dict[int, int], {7: "x"}, "$[*]", "is str, not int"),
        (dict[Level, int], {1: 1}, "$", "a key that is none of the declared choices"),
        (dict[Literal[1], int], {True: 1}, "$", "a key that is none of the declared choices"),
        (dict[Colour, int], {"red": 1}, "$", "a key that is none of the declared choices"),
        (dict[UUID, list[int]], {UUID(int=1): ["x"]}, "$[*][0]", "is str, not int"),
        (dict[Colour, int], {Colour.RED: "x"}, "$[*]", "is str, not int"),
        (list[int], (1,), "$", "is tuple, not list"),
        (list[str], Words(["a"]), "$", "is Words, not list"),
        (tuple[int, ...], [1], "$", "is list, not tuple"),
        (tuple[int, str], [1, "a"], "$", "is list, not tuple"),
        (dict[str, int], [1], "$", "is list, not dict"),
        (tuple[int, str], (1,), "$", "has 1 items, not 2"),
        (tuple[int, str], (1, 2), "$[1]", "is int, not str"),
        (set[str], frozenset({"a"}), "$", "is frozenset, not set"),
        (Device, SharedDevice("p"), "$", "is SharedDevice, not Device"),
        (Device, {"pool": "p"}, "$", "is dict, not Device"),
        (list[Device], [DEVICE, Device("p", cdi=("a", 2))], "$[1].cdi[1]", "is int, not str"),  # type: ignore[arg-type]
        (Node, Node("a", parent_of={"b": Node("b", [Node(3)])}), "$.parent_of[*].below[0].name", "is int, not str"),  # type: ignore[arg-type]
        (Colour, "red", "$", "none of the declared choices"),
        (Level, 1, "$", "none of the declared choices"),
        (Literal["a"], "b", "$", "none of the declared choices"),
        (Literal[1], True, "$", "none of the declared choices"),
        (Literal["a"], ["a"], "$", "none of the declared choices"),
        (int | str, 1.5, "$", "none of the declared types"),
        (datetime, date(2026, 1, 1), "$", "is date, not datetime"),
        (datetime, NEW_YORK, "$", "a named zone"),
        (datetime, datetime(2026, 1, 1, tzinfo=timezone(timedelta(hours=1), "CET")), "$", "a named zone"),
        (datetime, datetime(2026, 1, 1, tzinfo=timezone(timedelta(microseconds=1))), "$", "less than a second"),
        (datetime, datetime(2026, 1, 1, tzinfo=timezone(timedelta(microseconds=-999_999))), "$", "less than a second"),
        (datetime, datetime(2026, 10, 25, 2, fold=1), "$", "fold=1"),
        (datetime, datetime(2026, 10, 25, 2, fold=1, tzinfo=UTC), "$", "fold=1"),
        (UUID, str(UUID(int=1)), "$", "is str, not UUID"),
        (Node, Node("a", parent_of={"b": Node("\ud800")}), "$.parent_of[*].name", "a lone surrogate"),
        (list[Device], [DEVICE, Device("p", cdi=("a", "\ud800"))], "$[1].cdi[1]", "a lone surrogate"),
        (Any, {"a": (1,)}, "$[*]", "of type tuple"),
        (dict, {"a": {1: 2}}, "$[*]", "a key of type int"),
        (list, ({},), "$", "is tuple, not list"),
    ],
)
def test_a_value_that_does_not_fit_its_type_is_refused_with_its_place(
    cls: Any, value: Any, where: str, why: str
) -> None:
    with pytest.raises(UnstorableValue) as caught:
        Schema("Value", type=cls).encode(value)
    assert caught.value.where == where
    assert why in caught.value.why


def test_objects_that_contain_themselves_are_refused() -> None:
    node = Node("a")
    node.below.append(node)
    with pytest.raises(UnstorableValue, match="contains itself"):
        Schema("Node", type=Node).encode(node)


def test_objects_nested_too_deeply_are_refused() -> None:
    node = Node("a")
    for _ in range(150):
        node = Node("a", [node])
    with pytest.raises(UnstorableValue, match="levels deep"):
        Schema("Node", type=Node).encode(node)


@pytest.mark.parametrize(
    ("cls", "data", "detail"),
    [
        (Device, b"[]", "$ is list, not dict"),
        (Device, b"{}", "$.pool is missing, and has no default"),
        (Device, b'{"pool":1}', "$.pool is int, not str"),
        (Device, b'{"pool":"p","cdi":["a",1]}', "$.cdi[1] is int, not str"),
        (Device, b'{"pool":"p","share":"x"}', "$.share is not a UUID"),
        (list[Device], b'[{"pool":"p"},7]', "$[1] is int, not dict"),
        (list[Device], b"{}", "$ is dict, not list"),
        (int, b"18446744073709551616", "$ is float, not int"),
        (float, b'"1"', "$ is str, not float"),
        (datetime, b'"noon"', "$ is not a time in ISO 8601"),
        (datetime, b"12", "$ is int, not str"),
        (Colour, b'"green"', "$ is none of the declared choices"),
        (Literal[1], b"true", "$ is none of the declared choices"),
        (dict[Colour, int], b'{"green":1}', "$ has a key that is none of the declared choices"),
        (dict[Colour, int], b'{"red":"1"}', "$[*] is str, not int"),
        (dict[UUID, int], b'{"%b":1,"%b":2}' % (b"a" * 32, b"A" * 32), "$ has two keys that mean the same"),
        (set[str], b'["a","a"]', "$ holds a value twice, which a set cannot"),
        (set[Any], b"[[]]", "$ is refused by a set with TypeError"),
        (tuple[int, str], b"[1]", "$ has 1 items, not 2"),
        (tuple[int, str], b'{"a":1,"b":2}', "$ is dict, not list"),
        (dict[str, int], b"[1]", "$ is list, not dict"),
        (int | None, b'"x"', "$ is str, which is none of the declared types"),
        (dict, b"[]", "$ is list, not dict"),
    ],
)
def test_data_of_the_wrong_shape_is_a_misfit_with_its_place(cls: Any, data: bytes, detail: str) -> None:
    with pytest.raises(Misfit) as caught:
        Schema("Value", type=cls).decode(data, 1, 1)
    assert str(caught.value) == detail


EDGES = {0: "zero", -1: "minus", 2**64 - 1: "highest", -(2**63): "lowest"}


def test_integer_keys_are_spelled_as_go_spells_them() -> None:
    schema = Schema("Map", type=dict[int, str])
    data = b'{"0":"zero","-1":"minus","18446744073709551615":"highest","-9223372036854775808":"lowest"}'
    assert schema.encode(EDGES).json == data
    assert schema.decode(data, 1, 1)[0] == EDGES
    assert Schema("Map", type=dict[Level, bool]).encode({Level.HIGH: True}).json == b'{"10":true}'


SPELLINGS = ["", "-", "+1", "01", "-0", "00", "-01", "1.0", "1e3", " 1", "1 ", "1_0", "0x1", "١", "１", "one", "None"]
BEYOND = [str(2**64), str(-(2**63) - 1), "9" * 20, "1" * 5000]


@pytest.mark.parametrize("key", [*SPELLINGS, *BEYOND], ids=lambda key: ascii(key)[:24])
def test_an_integer_key_in_any_other_spelling_is_refused(key: str) -> None:
    """So no two keys of a file can mean the same."""
    with pytest.raises(Misfit) as caught:
        Schema("Map", type=dict[int, str]).decode(orjson.dumps({key: "x"}), 1, 1)
    assert str(caught.value) == "$ has a key that is not an integer of 64 bits in plain decimal digits"


def test_integer_keys_that_a_migration_left_as_numbers_are_refused() -> None:
    schema = Schema(
        "Map", 2, type=dict[int, str], migrations={1: lambda plain: {int(key): plain[key] for key in plain}}
    )
    with pytest.raises(Misfit, match="a key that is int, not str"):
        schema.decode(b'{"1":"x"}', 1, 1)


def test_objects_nested_without_end_are_a_misfit_and_no_crash() -> None:
    deep = b'{"name":"a","below":[' * 400 + b"]}" * 400
    limit = sys.getrecursionlimit()  # hypothesis may have raised it
    sys.setrecursionlimit(len(inspect.stack(0)) + 400)
    try:
        with pytest.raises(Misfit, match="nested too deeply"):
            Schema("Node", type=Node).decode(deep, 1, 1)
    finally:
        sys.setrecursionlimit(limit)
