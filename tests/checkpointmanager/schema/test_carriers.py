"""Objects that carry along what a newer program added to them, wherever they go."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import pytest

from checkpointmanager import CheckpointManager, Schema, UnknownFields, unknown_fields
from checkpointmanager.format import open_sealed

from ..fleets import FLEET, V3, Device3, device, read, updated, written
from .files import loaded, refusal, stored


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
    for devices, version, readable_by in ((tuple(carried), 5, 3), ((), 3, 2)):
        header = open_sealed(written(schema, CarrierFleet("f", devices)).current["k"], "k")[0]
        assert (header.version, header.readable_by) == (version, readable_by)


def test_a_carrier_carries_what_a_program_of_the_same_version_added() -> None:
    value = loaded(CARRIERS, b'{"name":"a","more":1,"devices":[{"id":"b","more":2},{"id":"c"}]}')
    assert [dict(rest) for rest in (value.rest, *(d.rest for d in value.devices))] == [{"more": 1}, {"more": 2}, {}]
    created = stored(CARRIERS, CarrierFleet("new", (value.devices[0], Carrier("n"))))
    assert created == b'{"name":"new","devices":[{"more":2,"id":"b"},{"id":"n"}]}'


def test_a_carrier_of_an_older_version_carries_nothing() -> None:
    value = loaded(Schema("Fleet", 2, type=CarrierFleet), b'{"name":"a","more":1,"devices":[{"id":"b","more":1}]}')
    assert [(dict(rest), rest.version) for rest in (value.rest, value.devices[0].rest)] == [({}, 0), ({}, 0)]


def test_a_carrier_keeps_also_a_field_of_its_own_name() -> None:
    value = loaded(CARRIERS, b'{"name":"a","rest":7}', 2)
    assert dict(value.rest) == {"rest": 7}
    assert stored(CARRIERS, value) == b'{"rest":7,"name":"a","devices":[]}'


def test_carried_fields_are_neither_shown_nor_compared_nor_changed() -> None:
    value = loaded(CARRIERS, b'{"name":"a","secret":"hunter2"}', 2)
    assert "hunter2" not in repr(value) + repr(value.rest)
    assert repr(value.rest) == "UnknownFields(1 from version 2)"
    assert value == CarrierFleet("a")
    assert (len(value.rest), list(value.rest), value.rest["secret"]) == (1, ["secret"], "hunter2")
    with pytest.raises(TypeError):
        value.rest["secret"] = ""


@dataclass(frozen=True)
class Sized(Carrier):
    size: int  # type: ignore[misc]  # the carrier has a default, but mypy does not see that it is keyword-only


def test_a_carrier_does_not_disturb_its_class() -> None:
    schema = Schema("Sized", 1, type=Sized)
    value = loaded(schema, b'{"id":"a","size":7,"more":1}', 2)
    assert value == Sized(id="a", size=7)
    assert hash(value) == hash(Sized(id="a", size=7))
    assert repr(value) == "Sized(id='a', size=7)"


@pytest.mark.parametrize("rest", [UnknownFields({"a": {1}}), {"a": 1}, None])
def test_a_carrier_is_checked_like_any_other_value(rest: Any) -> None:
    where = refusal(CARRIERS, CarrierFleet("f", (Carrier("a", rest=rest),))).where
    assert where.startswith("$.devices[0].rest")
