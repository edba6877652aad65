"""Versions: defaults, migrations, readable_by."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import orjson
import pytest

from checkpointmanager import CheckpointTooNew, CorruptCheckpoint, Reason, Schema

from .files import loaded, rewritten, stored


@dataclass
class Lease:
    holder: str
    seconds: int = 60
    tags: list[str] = field(default_factory=lambda: ["new"])


def to_2(plain: Any) -> Any:
    return {"holder": plain["name"], "minutes": plain.get("minutes", 1)}


def to_3(plain: Any) -> Any:
    return {"holder": plain["holder"], "seconds": 60 * plain["minutes"], "tags": []}


LEASES = Schema("Lease", version=3, type=Lease, migrations={1: to_2, 2: to_3})
SKIPPING = Schema("Lease", version=3, type=Lease, migrations={2: to_3})


@pytest.mark.parametrize(
    ("schema", "version", "data"),
    [
        (LEASES, 1, b'{"name":"a","minutes":2}'),
        (LEASES, 2, b'{"holder":"a","minutes":2}'),
        (LEASES, 3, b'{"holder":"a","seconds":120,"tags":[]}'),
        (SKIPPING, 1, b'{"holder":"a","minutes":2}'),  # without a migration, data passes as it is
    ],
)
def test_each_version_is_read_and_rewritten_as_the_present_one(
    schema: Schema[Lease], version: int, data: bytes
) -> None:
    assert loaded(schema, data, version) == Lease("a", 120, [])
    header, plain = rewritten(schema, data, version)
    assert (header.version, header.readable_by) == (3, 3)
    assert plain == {"holder": "a", "seconds": 120, "tags": []}


@pytest.mark.parametrize(("version", "kept"), [(1, False), (2, False), (3, True), (4, True)])
def test_unknown_fields_are_dropped_with_older_versions_only(version: int, kept: bool) -> None:
    schema = Schema("Lease", version=3, type=Lease)
    _, plain = rewritten(schema, b'{"holder":"a","gone":1}', version)
    assert ("gone" in plain) is kept


@pytest.mark.parametrize("there", [(), ("seconds",), ("tags",), ("seconds", "tags")])
def test_unknown_fields_are_noticed_whatever_else_is_missing(there: tuple[str, ...]) -> None:
    """The number of members alone does not show it: one may be missing and another one unknown."""
    whole = {"holder": "a", "seconds": 3, "tags": []}
    plain = {name: value for name, value in whole.items() if name == "holder" or name in there}
    schema = Schema("Lease", type=Lease)
    for count in range(4):
        extra = {f"unknown-{number}": number for number in range(count)}
        _, left = rewritten(schema, orjson.dumps(plain | extra))
        assert {name: left[name] for name in left if name not in whole} == extra


@pytest.mark.parametrize(("stated", "ours", "written"), [(1, 2, 2), (2, 1, 2), (1, 1, 1)])
def test_a_file_of_this_version_keeps_the_stricter_readable_by_with_its_unknown_fields(
    stated: int, ours: int, written: int
) -> None:
    typed = Schema("Lease", version=2, readable_by=ours, type=Lease)
    foreign: Schema[Any] = Schema("Lease", version=2, readable_by=ours, encode=lambda _: {}, decode=dict)
    for schema in (typed, foreign):
        nothing_unknown = stored(schema, Lease("a"))
        for data, expected in ((b'{"holder":"a","more":1}', written), (nothing_unknown, ours)):
            header, _ = rewritten(schema, data, 2, stated)
            assert (header.version, header.readable_by) == (2, expected)


@pytest.mark.parametrize(
    ("version", "readable_by", "readable"),
    [(1, 1, True), (2, 1, True), (2, 2, True), (3, 1, True), (3, 2, True), (3, 3, False), (9, 2, True), (9, 3, False)],
)
def test_version_2_reads_what_allows_it_to(version: int, readable_by: int, readable: bool) -> None:
    schema = Schema("Lease", version=2, type=Lease)
    if readable:
        assert loaded(schema, b'{"holder":"a"}', version, readable_by).holder == "a"
        return
    says = f"version {version} of kind Lease, this program knows version 2, {readable_by} or later"
    with pytest.raises(CheckpointTooNew, match=says):
        loaded(schema, b'{"holder":"a"}', version, readable_by)


@pytest.mark.parametrize("data", [b"", b"{", b"nan", b"NaN", b'{"a":1}x', b'"\xff"', b"[" * 2000 + b"]" * 2000])
@pytest.mark.parametrize("version", [1, 2])
def test_data_that_is_not_json_is_named_so(data: bytes, version: int) -> None:
    with pytest.raises(CorruptCheckpoint) as caught:
        loaded(Schema("Any"), data, version)
    assert caught.value.reason is Reason.NOT_JSON
