"""Addresses, networks, paths, durations and bytes: stored in one spelling, which the page about schemas shows."""

from __future__ import annotations

import re
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from ipaddress import IPv4Address, IPv4Interface, IPv4Network, IPv6Address, IPv6Interface, IPv6Network
from pathlib import Path, PurePath, PurePosixPath, PureWindowsPath
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from checkpointmanager import CheckpointManager, MemoryStore, Schema, SchemaMismatch, UnstorableValue
from checkpointmanager._schema import Misfit

from .test_jsonvalues import text

v4 = st.ip_addresses(v=4)
scopes = st.text(st.characters(categories=["L", "N"]), min_size=1, max_size=8)
v6 = st.ip_addresses(v=6) | v4.map(lambda address: IPv6Address(f"::ffff:{address}"))
scoped = st.builds(lambda address, scope: IPv6Address(f"{address}%{scope}"), v6, scopes)
paths = st.lists(text.filter(lambda part: "\0" not in part), max_size=4).map(lambda parts: PurePosixPath(*parts))
durations = st.timedeltas(timedelta(microseconds=-(2**63)), timedelta(microseconds=2**63))
VALUES: dict[Any, st.SearchStrategy[Any]] = {
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
EITHER: dict[Any, st.SearchStrategy[Any]] = {
    IPv4Address | IPv6Address: v4 | v6 | scoped,
    IPv6Network | IPv4Network | None: VALUES[IPv4Network] | VALUES[IPv6Network] | st.none(),
    IPv4Interface | IPv6Interface | int: VALUES[IPv4Interface] | VALUES[IPv6Interface] | st.integers(0, 9),
}
each_type = pytest.mark.parametrize("cls", VALUES, ids=lambda cls: cls.__name__)


@each_type
@pytest.mark.parametrize("shape", ["the value", "a list", "the keys of a dict"])
def test_a_value_comes_back_as_it_was(cls: Any, shape: str) -> None:
    schema: Schema[Any] = Schema("Value", type={"the value": cls, "a list": list[cls]}.get(shape, dict[cls, int]))

    @given(VALUES[cls])
    @settings(max_examples=100, deadline=None)
    def round_trip(value: Any) -> None:
        stored = {"the value": value, "a list": [value, value]}.get(shape, {value: 1})
        encoded = schema.encode(stored)
        back, unknowns = schema.decode(encoded.json, 1, 1)
        assert (back, repr(back), unknowns) == (stored, repr(stored), None)
        assert schema.encode(back) == encoded

    round_trip()


@pytest.mark.parametrize("cls", EITHER, ids=str)
def test_ipv4_and_ipv6_are_told_apart(cls: Any) -> None:
    schema: Schema[Any] = Schema("Value", type=list[cls])

    @given(st.lists(EITHER[cls]))
    @settings(max_examples=100, deadline=None)
    def round_trip(values: list[Any]) -> None:
        back, _ = schema.decode(schema.encode(values).json, 1, 1)
        assert repr(back) == repr(values)

    round_trip()


def test_they_are_told_apart_as_keys_too() -> None:
    schema = Schema("Value", type=dict[IPv4Address | IPv6Address, int])
    value: dict[IPv4Address | IPv6Address, int] = {IPv4Address("10.0.0.7"): 1, IPv6Address("fd00::7"): 2}
    assert schema.decode(schema.encode(value).json, 1, 1)[0] == value


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
]


@pytest.mark.parametrize(("cls", "value", "plain"), SPELLED)
def test_what_the_file_holds(cls: Any, value: Any, plain: Any) -> None:
    assert orjson.loads(Schema("Value", type=cls).encode(value).json) == plain


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
def test_any_other_spelling_is_a_mismatch_and_no_damage(cls: Any, plain: Any, why: str) -> None:
    @dataclass
    class Holder:
        value: cls

    Holder.__annotations__["value"] = cls
    store = MemoryStore()
    CheckpointManager(store, Schema("Value")).create_checkpoint("a", {"value": plain})
    before = store.current["a"]
    with pytest.raises(SchemaMismatch) as caught:
        CheckpointManager(store, Schema("Value", type=Holder)).get_checkpoint("a")
    assert (caught.value.where, caught.value.why) == ("$.value", why)
    assert store.current["a"] == before


@given(text)
@settings(max_examples=300)
def test_what_is_read_is_written_the_same(plain: str) -> None:
    for cls in VALUES:
        try:
            value, _ = Schema("Value", type=cls).decode(orjson.dumps(plain), 1, 1)
        except Exception as error:  # noqa: BLE001  (of text that is no spelling of a value)
            assert type(error).__name__ == "Misfit"  # noqa: PT017
        else:
            assert Schema("Value", type=cls).encode(value).json == orjson.dumps(plain)


PAGE = Path(__file__).parents[3] / "tools" / "docs" / "guides" / "schemas.md"


@each_type
def test_the_page_about_schemas_shows_the_form_in_the_file(cls: Any) -> None:
    (row,) = [line for line in PAGE.read_text().splitlines() if line.startswith("|") and f"`{cls.__name__}`" in line]
    _, _, forms, _ = row.split("|")
    schema: Schema[Any] = Schema("Value", type=cls)
    read = []
    for form in re.findall("`([^`]+)`", forms):
        with suppress(Misfit):  # a row shows two types side by side
            read.append(schema.decode(form.encode(), 1, 1)[0])
    assert read
    assert all(schema.encode(value) for value in read)


class Minutes(timedelta):
    pass


@pytest.mark.parametrize(
    ("cls", "value", "why"),
    [
        (IPv4Address, "10.0.0.7", "is str, not IPv4Address"),
        (IPv4Address, IPv6Address("::1"), "is IPv6Address, not IPv4Address"),
        (IPv4Address, IPv4Interface("10.0.0.7"), "is IPv4Interface, not IPv4Address"),
        (Path, PurePosixPath("/a"), "is PurePosixPath, not PosixPath"),
        (PurePath, Path("/a"), "is PosixPath, not PurePosixPath"),
        (PurePath, PureWindowsPath("a"), "is PureWindowsPath, not PurePosixPath"),
        (Path, Path("\udcff"), "holds a lone surrogate, which is not Unicode text"),
        (timedelta, Minutes(1), "is Minutes, not timedelta"),
        (timedelta, timedelta.max, "is an integer beyond 64 bits, which JSON readers turn into a float"),
        (bytes, bytearray(b"a"), "is bytearray, not bytes"),
    ],
)
def test_what_would_not_come_back_is_refused(cls: Any, value: Any, why: str) -> None:
    with pytest.raises(UnstorableValue) as caught:
        Schema("Value", type=cls).encode(value)
    assert caught.value.why == why
