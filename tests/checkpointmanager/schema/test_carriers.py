"""Objects that carry along what a newer program added to them, wherever they go."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import pytest

from checkpointmanager import CheckpointManager, Schema, UnknownFields, UnstorableValue, unknown_fields

from ..fleets import FLEET, V3, Device3, device, read, updated, written


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


def test_a_carrier_carries_what_a_program_of_the_same_version_added() -> None:
    data = b'{"name":"a","more":1,"devices":[{"id":"b","more":2},{"id":"c"}]}'
    value, _ = CARRIERS.decode(data, 1, 1)
    assert [dict(rest) for rest in (value.rest, *(d.rest for d in value.devices))] == [{"more": 1}, {"more": 2}, {}]
    created = CARRIERS.encode(CarrierFleet("new", (value.devices[0], Carrier("n"))))
    assert created == (b'{"name":"new","devices":[{"more":2,"id":"b"},{"id":"n"}]}', 1, 1)


def test_a_carrier_of_an_older_version_carries_nothing() -> None:
    schema = Schema("Fleet", 2, type=CarrierFleet)
    value, unknowns = schema.decode(b'{"name":"a","more":1,"devices":[{"id":"b","more":1}]}', 1, 1)
    assert unknowns is None
    for rest in (value.rest, value.devices[0].rest):
        assert dict(rest) == {}
        assert rest.version == 0
    assert schema.encode(value) == schema.encode(CarrierFleet("a", (Carrier("b"),)))


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


@dataclass(frozen=True)
class Sized(Carrier):
    size: int  # type: ignore[misc]  # the carrier has a default, but mypy does not see that it is keyword-only


def test_a_carrier_does_not_disturb_its_class() -> None:
    schema = Schema("Sized", 1, type=Sized)
    value, _ = schema.decode(b'{"id":"a","size":7,"more":1}', 2, 1)
    assert value == Sized(id="a", size=7)
    assert hash(value) == hash(Sized(id="a", size=7))
    assert repr(value) == "Sized(id='a', size=7)"


@pytest.mark.parametrize("rest", [UnknownFields({"a": {1}}), {"a": 1}, None])
def test_a_carrier_is_checked_like_any_other_value(rest: Any) -> None:
    with pytest.raises(UnstorableValue, match=r"^\$.devices\[0\].rest"):
        CARRIERS.encode(CarrierFleet("f", (Carrier("a", rest=rest),)))
