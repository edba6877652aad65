"""Programs read and rewrite each other's files, and none loses what another one added.

Three versions of a program; and two of one version that were built from different branches.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any
from uuid import UUID

import orjson
import pytest

from checkpointmanager import CheckpointManager, Schema, UnstorableValue

from ..fleets import (
    FLEET,
    V1,
    V2,
    V3,
    Device1,
    Device2,
    Device3,
    Fleet1,
    Fleet2,
    Fleet3,
    device,
    read,
    same,
    updated,
    written,
)
from .files import rewritten
from .test_values import Colour

RICH = Schema("Fleet", 1, type=Fleet3)  # the version of V1 with all the fields of V3


def after(change: Callable[[Fleet1], Fleet1]) -> Fleet3:
    """What version 3 reads after version 1 has changed its file; the same if both call it version 1."""
    results = []
    for other, version in ((V3, 3), (RICH, 1)):
        store = written(other, FLEET)
        updated(store, V1, change)
        document = orjson.loads(store.current["k"])
        assert (document["version"], document["readable_by"], document["generation"]) == (version, 1, 2)
        results.append(read(store, other))
    assert results[0] == results[1]
    return results[0]


def test_everything_is_kept_when_an_older_program_changes_one_field() -> None:
    def rename(fleet: Fleet1) -> Fleet1:
        fleet.name = "renamed"
        return fleet

    assert after(rename) == replace(FLEET, name="renamed")


def test_everything_is_kept_through_replace_of_the_whole_and_of_its_parts() -> None:
    """By place: along fields and the keys of dicts. Lists and tuples hold the objects that were read."""

    def renew(fleet: Fleet1) -> Fleet1:
        assert fleet.first
        parts = {name: replace(part) for name, part in fleet.by_name.items()}
        return replace(fleet, name="renamed", first=replace(fleet.first), by_name=parts)

    assert after(renew) == replace(FLEET, name="renamed")


def test_objects_in_a_list_keep_their_fields_wherever_they_move() -> None:
    def shuffle(fleet: Fleet1) -> Fleet1:
        first, *others = fleet.devices
        first.id = "a2"
        fleet.devices = [*reversed(others), first]
        fleet.spares = fleet.spares[::-1]
        return fleet

    changed = after(shuffle)
    assert changed.devices == [device("c"), device("b"), replace(device("a"), id="a2")]
    assert changed.spares == (device("t"), device("s"))


def test_objects_keep_their_fields_from_list_to_dict_and_back() -> None:
    def swap(fleet: Fleet1) -> Fleet1:
        fleet.first, fleet.devices[0] = fleet.devices[0], fleet.by_name["x"]
        fleet.by_name["z"] = fleet.spares[0]
        return fleet

    changed = after(swap)
    assert (changed.first, changed.devices[0], changed.by_name["z"]) == (device("a"), device("x"), device("s"))


def test_objects_that_change_places_do_not_take_fields_of_each_other() -> None:
    plain = {
        "name": "fleet",
        "first": {"id": "f", "only_f": 1},
        "by_name": {"x": {"id": "x", "only_x": 1}, "y": {"id": "y"}},
    }

    def rotate(fleet: Fleet1) -> Fleet1:
        fleet.first, fleet.by_name["x"], fleet.by_name["y"] = fleet.by_name["x"], fleet.by_name["y"], fleet.first
        return fleet

    _, left = rewritten(V1, orjson.dumps(plain), 3, change=rotate)
    assert left["first"] == {"id": "x", "only_x": 1}
    assert left["by_name"] == {"x": {"id": "y"}, "y": {"id": "f", "only_f": 1}}


def test_a_new_object_in_a_list_never_gets_the_fields_of_the_one_it_replaces() -> None:
    def renew(fleet: Fleet1) -> Fleet1:
        fleet.devices = [replace(old) for old in fleet.devices]
        fleet.spares = (Device1("new"),)
        return fleet

    changed = after(renew)
    assert changed.devices == [Device3("a"), Device3("b"), Device3("c")]
    assert changed.spares == (Device3("new"),)
    assert changed.owners == FLEET.owners


def test_fields_go_with_the_object_that_is_removed() -> None:
    def remove(fleet: Fleet1) -> Fleet1:
        del fleet.by_name["x"], fleet.devices[1]
        fleet.first = None
        fleet.by_name["new"] = Device1("new")
        return fleet

    changed = after(remove)
    assert changed.first is None
    assert changed.devices == [device("a"), device("c")]
    assert changed.by_name == {"y": device("y"), "new": Device3("new")}


def test_up_and_down_through_three_versions() -> None:
    def by_1(fleet: Fleet1) -> Fleet1:
        fleet.devices.insert(0, Device1("from 1"))
        return fleet

    def by_2(fleet: Fleet2) -> Fleet2:
        fleet.devices.insert(0, Device2("from 2", "pool 2"))
        fleet.zone = "zone 2"
        return fleet

    def by_3(fleet: Fleet3) -> Fleet3:
        fleet.owners.append("3")
        return fleet

    store = written(V1, Fleet1("fleet", devices=[Device1("old")]))
    updated(store, V3, by_3)
    updated(store, V1, by_1)
    updated(store, V2, by_2)
    updated(store, V1, same)
    assert read(store, V3) == Fleet3(
        "fleet", devices=[Device3("from 2", "pool 2"), Device3("from 1"), Device3("old")], zone="zone 2", owners=["3"]
    )
    assert read(store, V1).devices == [Device1("from 2"), Device1("from 1"), Device1("old")]


def test_create_with_a_fresh_object_replaces() -> None:
    store = written(V3, FLEET)
    manager = CheckpointManager(store, V1)
    manager.create_checkpoint("k", Fleet1("fresh"))
    assert read(store, V3) == Fleet3("fresh")
    assert manager.get_checkpoint("k").version == 1


@dataclass
class Rack:
    fleets: dict[UUID, Fleet1]
    ports: dict[Colour, int] = field(default_factory=dict)
    slots: dict[int, Fleet1] = field(default_factory=dict)


@pytest.mark.parametrize("fresh", [False, True])
@pytest.mark.parametrize("version", [1, 2])
def test_a_key_in_another_spelling_is_not_taken_for_an_unknown_field(version: int, fresh: bool) -> None:
    """It would be put back beside ours, and no program could read a file with two keys that mean the same."""
    schema = Schema("Rack", 1, type=Rack)
    name, spelled = UUID(int=0xAB), UUID(int=0xAB).hex.upper()
    plain: dict[str, Any] = {
        "fleets": {spelled: {"name": "a", "unknown": 1}, str(UUID(int=1)): {"name": "b"}},
        "more": 2,
    }
    plain["slots"] = {"-7": {"name": "c", "unknown": 3}}

    def change(rack: Rack) -> Rack:
        rack.fleets[name] = replace(rack.fleets[name], name="renamed")
        rack.slots = {-7: replace(rack.slots[-7])}
        return replace(rack) if fresh else rack

    _, left = rewritten(schema, orjson.dumps(plain), version, change=change)

    assert left["more"] == 2
    assert left["slots"]["-7"]["unknown"] == 3
    assert left["fleets"].keys() == {str(name), str(UUID(int=1))}
    assert left["fleets"][str(name)].items() >= {"name": "renamed", "unknown": 1}.items()


def test_unknown_fields_that_are_nested_too_deeply_to_be_written_are_refused_as_that() -> None:
    deep = b'{"name":"a","unknown":' + b"[" * 300 + b"]" * 300 + b"}"
    with pytest.raises(UnstorableValue, match="nested more than 200 levels deep") as caught:
        rewritten(V1, deep)
    assert caught.value.where.startswith("$[*][0][0]")


@pytest.mark.parametrize(
    ("data", "decode", "encode"),
    [
        (b'{"a":1,"b":2}', lambda plain: plain["a"], lambda _: "ab"),
        (b"[1]", lambda plain: plain[0], lambda value: {"a": value}),
    ],
    ids=["an object that becomes text", "a list that becomes an object"],
)
def test_what_an_older_program_stores_in_another_shape_is_stored_so(
    data: bytes, decode: Callable[[Any], Any], encode: Callable[[Any], Any]
) -> None:
    schema: Schema[Any] = Schema("Shape", 1, encode=encode, decode=decode)
    header, left = rewritten(schema, data, 2)
    assert (left, header.version, header.readable_by) == (encode(decode(orjson.loads(data))), 2, 1)
