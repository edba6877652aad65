"""A value or data of another type than declared is refused with its place and the reason."""

from __future__ import annotations

import inspect
import math
import sys
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta, timezone
from ipaddress import IPv4Address, IPv4Interface, IPv4Network, IPv6Address
from pathlib import Path, PurePath, PurePosixPath, PureWindowsPath
from typing import Any, Literal
from uuid import UUID
from zoneinfo import ZoneInfo

import orjson
import pytest

from checkpointmanager import Schema

from .files import mismatch, refusal
from .test_values import Colour, Device, Level, Node


class Minutes(timedelta):
    pass


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
        (IPv4Address, "10.0.0.7", "$", "is str, not IPv4Address"),
        (IPv4Address, IPv6Address("::1"), "$", "is IPv6Address, not IPv4Address"),
        (IPv4Address, IPv4Interface("10.0.0.7"), "$", "is IPv4Interface, not IPv4Address"),
        (Path, PurePosixPath("/a"), "$", "is PurePosixPath, not PosixPath"),
        (PurePath, Path("/a"), "$", "is PosixPath, not PurePosixPath"),
        (PurePath, PureWindowsPath("a"), "$", "is PureWindowsPath, not PurePosixPath"),
        (Path, Path("\udcff"), "$", "holds a lone surrogate, which is not Unicode text"),
        (timedelta, Minutes(1), "$", "is Minutes, not timedelta"),
        (timedelta, timedelta.max, "$", "is an integer beyond 64 bits, which JSON readers turn into a float"),
        (bytes, bytearray(b"a"), "$", "is bytearray, not bytes"),
    ],
)
def test_a_value_that_does_not_fit_its_type_is_refused_with_its_place(
    cls: Any, value: Any, where: str, why: str
) -> None:
    error = refusal(Schema("Value", type=cls), value)
    assert error.where == where
    assert why in error.why


def test_objects_nested_too_deeply_are_refused() -> None:
    node, endless = Node("a"), Node("a")
    for _ in range(150):
        node = Node("a", [node])
    endless.below.append(endless)
    assert "levels deep" in refusal(Schema("Node", type=Node), node).why
    assert "contains itself" in refusal(Schema("Node", type=Node), endless).why


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
def test_data_of_the_wrong_shape_is_a_mismatch_with_its_place(cls: Any, data: bytes, detail: str) -> None:
    error = mismatch(Schema("Value", type=cls), data)
    assert f"{error.where} {error.why}" == detail


NOT_CANONICAL: list[tuple[Any, Any, str]] = [
    (IPv4Address, "10.0.0.07", "is not the canonical form of any IPv4Address"),
    (IPv4Address, "10.0.0.7 ", "is not the canonical form of any IPv4Address"),
    (IPv4Address, "fd00::7", "is not the canonical form of any IPv4Address"),
    (IPv4Address, 167772167, "is int, not str"),
    (IPv4Network, "10.0.0.7/8", "is not the canonical form of any IPv4Network"),
    (IPv4Network, "10.0.0.0/255.0.0.0", "is not the canonical form of any IPv4Network"),
    (IPv4Network, "10.0.0.0", "is not the canonical form of any IPv4Network"),
    (IPv4Interface, "10.0.0.7", "is not the canonical form of any IPv4Interface"),
    (IPv4Address | IPv6Address, "10.0.0.07", "is not the canonical form of any IPv4Address"),
    (IPv4Address | IPv6Address, "FD00::7", "is not the canonical form of any IPv6Address"),
    (IPv4Address | IPv6Address, "pod", "is not the canonical form of any IPv4Address"),
    (IPv6Address, "FD00::7", "is not the canonical form of any IPv6Address"),
    (IPv6Address, "fd00:0::7", "is not the canonical form of any IPv6Address"),
    (IPv6Address, "::ffff:102:304", "is not the canonical form of any IPv6Address"),
    (Path, "", "is not the canonical form of any PosixPath"),
    (Path, "/var//lib", "is not the canonical form of any PosixPath"),
    (Path, "/var/", "is not the canonical form of any PosixPath"),
    (timedelta, 1.0, "is float, not int"),
    (timedelta, True, "is bool, not int"),
    (timedelta, "1", "is str, not int"),
    (bytes, "/wA", "is not the canonical form of any bytes"),
    (bytes, "/wB=", "is not the canonical form of any bytes"),
    (bytes, "_wA=", "is not the canonical form of any bytes"),
    (bytes, "/wA=\n", "is not the canonical form of any bytes"),
    (bytes, "ä", "is not the canonical form of any bytes"),
]


@pytest.mark.parametrize(("cls", "plain", "why"), NOT_CANONICAL)
def test_any_other_spelling_is_a_mismatch(cls: Any, plain: Any, why: str) -> None:
    assert mismatch(Schema("Value", type=cls), orjson.dumps(plain)).why == why


SPELLINGS = ["", "-", "+1", "01", "-0", "00", "-01", "1.0", "1e3", " 1", "1 ", "1_0", "0x1", "١", "１", "one", "None"]
BEYOND = [str(2**64), str(-(2**63) - 1), "9" * 20, "1" * 5000]


@pytest.mark.parametrize("key", [*SPELLINGS, *BEYOND], ids=lambda key: ascii(key)[:24])
def test_an_integer_key_in_any_other_spelling_is_refused(key: str) -> None:
    """So no two keys of a file can mean the same."""
    error = mismatch(Schema("Map", type=dict[int, str]), orjson.dumps({key: "x"}))
    assert error.why == "has a key that is not an integer of 64 bits in plain decimal digits"


def test_integer_keys_that_a_migration_left_as_numbers_are_refused() -> None:
    migrations = {1: lambda plain: {int(key): plain[key] for key in plain}}
    schema = Schema("Map", 2, type=dict[int, str], migrations=migrations)
    assert mismatch(schema, b'{"1":"x"}').why == "has a key that is int, not str"


def test_objects_nested_without_end_are_a_mismatch_and_no_crash() -> None:
    deep = b'{"name":"a","below":[' * 400 + b"]}" * 400
    limit = sys.getrecursionlimit()  # hypothesis may have raised it
    sys.setrecursionlimit(len(inspect.stack(0)) + 400)
    try:
        assert "nested too deeply" in mismatch(Schema("Node", type=Node), deep).why
    finally:
        sys.setrecursionlimit(limit)
