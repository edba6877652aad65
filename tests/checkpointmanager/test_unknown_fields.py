"""Three versions of a program read and rewrite each other's files, and none loses what another one added."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import orjson
import pytest

from checkpointmanager import (
    CheckpointManager,
    CheckpointTooNew,
    MemoryStore,
    Schema,
    UnknownFields,
    UnstorableValue,
    unknown_fields,
)

T = TypeVar("T")


@dataclass
class Device1:
    id: str


@dataclass
class Fleet1:
    name: str
    first: Device1 | None = None
    devices: list[Device1] = field(default_factory=list)
    spares: tuple[Device1, ...] = ()
    by_name: dict[str, Device1] = field(default_factory=dict)


@dataclass
class Device2(Device1):
    pool: str = "-"


@dataclass
class Fleet2(Fleet1):
    first: Device2 | None = None
    devices: list[Device2] = field(default_factory=list)  # type: ignore[assignment]
    spares: tuple[Device2, ...] = ()
    by_name: dict[str, Device2] = field(default_factory=dict)  # type: ignore[assignment]
    zone: str = "-"


@dataclass
class Device3(Device2):
    share: dict[str, int] = field(default_factory=dict)


@dataclass
class Fleet3(Fleet2):
    first: Device3 | None = None
    devices: list[Device3] = field(default_factory=list)  # type: ignore[assignment]
    spares: tuple[Device3, ...] = ()
    by_name: dict[str, Device3] = field(default_factory=dict)  # type: ignore[assignment]
    owners: list[str] = field(default_factory=list)


V1 = Schema("Fleet", 1, type=Fleet1)
V2 = Schema("Fleet", 2, readable_by=1, type=Fleet2)
V3 = Schema("Fleet", 3, readable_by=1, type=Fleet3)


def device(name: str) -> Device3:
    return Device3(name, f"pool of {name}", {name: 1})


FLEET = Fleet3(
    "fleet",
    device("f"),
    [device("a"), device("b"), device("c")],
    (device("s"), device("t")),
    {"x": device("x"), "y": device("y")},
    "zone",
    ["me", "you"],
)


def same(value: T) -> T:
    return value


def written(schema: Schema[Any], value: Any) -> MemoryStore:
    store = MemoryStore()
    CheckpointManager(store, schema).create_checkpoint("k", value)
    return store


def updated(store: MemoryStore, schema: Schema[T], change: Callable[[T], T]) -> None:
    CheckpointManager(store, schema).update_checkpoint("k", change)


def read(store: MemoryStore, schema: Schema[T]) -> T:
    return CheckpointManager(store, schema).get_checkpoint("k").data


def after(change: Callable[[Fleet1], Fleet1]) -> Fleet3:
    """What version 3 reads after version 1 has changed its file."""
    store = written(V3, FLEET)
    updated(store, V1, change)
    document = orjson.loads(store.current["k"])
    assert (document["version"], document["readable_by"], document["generation"]) == (3, 1, 2)
    return read(store, V3)


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


def test_everything_is_kept_when_parts_of_the_same_object_are_replaced() -> None:
    def renew(fleet: Fleet1) -> Fleet1:
        assert fleet.first
        fleet.first, fleet.by_name["x"] = replace(fleet.first), replace(fleet.by_name["x"])
        return fleet

    assert after(renew) == FLEET


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

    value, unknowns = V1.decode(orjson.dumps(plain), 3, 1)
    rewritten = orjson.loads(V1.encode(rotate(value), unknowns).json)
    assert rewritten["first"] == {"id": "x", "only_x": 1}
    assert rewritten["by_name"] == {"x": {"id": "y"}, "y": {"id": "f", "only_f": 1}}


def test_a_new_object_in_a_list_never_gets_the_fields_of_the_one_that_stood_there() -> None:
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


def test_what_an_older_program_may_not_read_it_may_not_rewrite() -> None:
    store = written(Schema("Fleet", 3, readable_by=2, type=Fleet3), FLEET)
    before = dict(store.current)
    with pytest.raises(CheckpointTooNew):
        updated(store, V1, same)
    with pytest.raises(CheckpointTooNew):
        CheckpointManager(store, V1).create_checkpoint("k", Fleet1("fresh"))
    assert store.current == before
    assert read(store, V2).zone == "zone"


@dataclass(frozen=True, slots=True)
class Carrier:
    id: str
    rest: UnknownFields = unknown_fields()


@dataclass(frozen=True)
class CarrierFleet:
    name: str
    devices: tuple[Carrier, ...] = ()
    rest: UnknownFields = unknown_fields()


CARRIERS = Schema("Fleet", 1, type=CarrierFleet)


def test_a_carrier_keeps_its_fields_through_replace_in_lists() -> None:
    store = written(V3, FLEET)
    updated(
        store,
        CARRIERS,
        lambda fleet: replace(fleet, devices=tuple(replace(d, id=d.id * 2) for d in fleet.devices[::-1])),
    )
    changed = read(store, V3)
    assert changed.devices == [replace(device(name), id=name * 2) for name in "cba"]
    assert (changed.first, changed.owners) == (FLEET.first, FLEET.owners)


def test_a_carrier_keeps_its_fields_and_version_through_create() -> None:
    store = written(V3, FLEET)
    manager = CheckpointManager(store, CARRIERS)
    fleet = manager.get_checkpoint("k").data
    created = manager.create_checkpoint("other", CarrierFleet("new", (fleet.devices[1], Carrier("n"))))
    assert created.version == 3
    assert CheckpointManager(store, V3).get_checkpoint("other").data.devices == [device("b"), Device3("n")]


def test_the_file_takes_the_highest_versions_of_what_it_carries() -> None:
    carried = [Carrier("a", rest=UnknownFields({"x": 1}, 5, 1)), Carrier("b", rest=UnknownFields({}, 4, 3))]
    schema = Schema("Fleet", 3, readable_by=2, type=CarrierFleet)
    encoded = schema.encode(CarrierFleet("f", tuple(carried)))
    assert (encoded.version, encoded.readable_by) == (5, 3)
    assert schema.encode(CarrierFleet("f"))[1:] == (3, 2)


def test_a_carrier_of_the_same_version_carries_nothing() -> None:
    CARRIERS.decode(V3.encode(FLEET).json, 3, 1)
    value, unknowns = CARRIERS.decode(b'{"name":"a","more":1,"devices":[{"id":"b","more":1}]}', 1, 1)
    assert unknowns is None
    for rest in (value.rest, value.devices[0].rest):
        assert dict(rest) == {}
        assert rest.version == 0
    assert CARRIERS.encode(value) == CARRIERS.encode(CarrierFleet("a", (Carrier("b"),)))


def test_a_carrier_keeps_also_a_field_of_its_own_name() -> None:
    value, _ = CARRIERS.decode(b'{"name":"a","rest":7}', 2, 1)
    assert dict(value.rest) == {"rest": 7}
    assert CARRIERS.encode(value).json == b'{"rest":7,"name":"a","devices":[]}'


def test_carried_fields_are_neither_shown_nor_compared_nor_changed() -> None:
    value, _ = CARRIERS.decode(b'{"name":"a","secret":"hunter2"}', 2, 1)
    assert "hunter2" not in repr(value) + repr(value.rest)
    assert repr(value.rest) == "UnknownFields(1 from version 2)"
    assert value == CarrierFleet("a")
    assert (len(value.rest), list(value.rest), value.rest["secret"]) == (1, ["secret"], "hunter2")
    with pytest.raises(TypeError):
        value.rest["secret"] = ""  # type: ignore[index]


@pytest.mark.parametrize("rest", [UnknownFields({"a": {1}}), {"a": 1}, None])
def test_a_carrier_is_checked_like_any_other_value(rest: Any) -> None:
    with pytest.raises(UnstorableValue, match=r"^\$.devices\[0\].rest"):
        CARRIERS.encode(CarrierFleet("f", (Carrier("a", rest=rest),)))
