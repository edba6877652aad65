"""Unions of dataclasses that a Literal field, the tag, tells apart: two types in one directory, one transaction."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, Literal

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from checkpointmanager import (
    CheckpointCache,
    CheckpointManager,
    CheckpointTooNew,
    MemoryStore,
    Schema,
    SchemaMismatch,
    UnknownFields,
    unknown_fields,
)

from ...long import times
from .files import loaded, mismatch, refusal, rewritten, stored
from .test_jsonvalues import json_values, text


@dataclass(frozen=True)
class Lease:
    holder: str
    kind: Literal["lease", "sublease"] = "lease"


@dataclass(frozen=True)
class Pool:
    free: int
    kind: Literal["pool"] = "pool"


@dataclass
class Group:
    members: list[Lease | Group]
    first: Lease | Pool | None = None
    by_name: dict[str, Lease | Pool] = field(default_factory=dict)
    kind: Literal["group"] = "group"


STATE = Schema("State", type=Lease | Pool)
GROUP = Schema("Group", type=Group)


GROUPED = Group([Lease("a"), Group([Lease("b")], Pool(1))], None, {"x": Lease("c"), "y": Pool(2)})


@pytest.mark.parametrize(
    ("schema", "value"),
    [(STATE, Lease("node-a")), (STATE, Lease("node-a", "sublease")), (STATE, Pool(7)), (GROUP, GROUPED)],
)
def test_each_type_comes_back_as_itself(schema: Schema[Any], value: Any) -> None:
    assert loaded(schema, stored(schema, value)) == value


def test_two_types_change_in_one_transaction() -> None:
    store = MemoryStore()
    with CheckpointCache(CheckpointManager(store, STATE)) as cache:
        cache.put("pool", Pool(1))
        cache.change(["pool", "pod-7"], lambda _: {"pool": Pool(0), "pod-7": Lease("node-a")})
    with CheckpointCache(CheckpointManager(store, STATE)) as cache:
        assert (cache["pool"], cache["pod-7"]) == (Pool(0), Lease("node-a"))


@pytest.mark.parametrize(
    ("plain", "where", "why"),
    [
        ({"kind": "host", "free": 1}, "$.kind", "is none of the declared choices"),
        ({"kind": None, "free": 1}, "$.kind", "is none of the declared choices"),
        ({"kind": ["pool"], "free": 1}, "$.kind", "is none of the declared choices"),
        ({"free": 1}, "$.kind", "is missing, and tells which type the object has"),
        ({"kind": "pool", "free": "1"}, "$.free", "is str, not int"),
        ({"kind": "pool", "holder": "a"}, "$.free", "is missing, and has no default"),
        (["pool"], "$", "is list, which is none of the declared types"),
    ],
)
def test_what_fits_no_type_is_a_mismatch_with_its_place(plain: Any, where: str, why: str) -> None:
    error = mismatch(STATE, orjson.dumps(plain))
    assert (error.where, error.why) == (where, why)


def test_a_tag_that_only_a_newer_program_knows_is_too_new() -> None:
    with pytest.raises(CheckpointTooNew, match=r"but \$.kind is none of the declared choices"):
        loaded(STATE, b'{"kind":"host"}', 2)


def test_a_value_of_another_type_cannot_be_stored() -> None:
    assert refusal(STATE, Group([])).why == "is Group, which is none of the declared types"


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize(
    ("changed", "left"),
    [
        (Lease("b", "sublease"), {"kind": "sublease", "holder": "b", "zone": {"name": "z"}}),
        (Pool(3), {"kind": "pool", "free": 3}),
    ],
)
def test_unknown_fields_stay_with_an_object_of_the_same_class_only(changed: Any, left: Any, version: int) -> None:
    data = b'{"kind":"lease","holder":"a","zone":{"name":"z"}}'
    assert rewritten(STATE, data, version, change=lambda _: changed)[1] == left


def test_the_same_below_the_top() -> None:
    lease = {"kind": "lease", "holder": "a", "zone": "z"}
    plain = {"kind": "group", "members": [lease], "first": lease, "by_name": {"x": lease, "y": lease}, "more": 1}

    def change(group: Group) -> Group:
        return replace(group, first=Pool(1), by_name={"x": Lease("b"), "y": Pool(2)})

    assert rewritten(GROUP, orjson.dumps(plain), change=change)[1] == {
        "kind": "group",
        "members": [lease],
        "first": {"kind": "pool", "free": 1},
        "by_name": {"x": {"kind": "lease", "holder": "b", "zone": "z"}, "y": {"kind": "pool", "free": 2}},
        "more": 1,
    }


@dataclass(frozen=True)
class Carrying:
    kind: Literal["lease"] = "lease"
    rest: UnknownFields = unknown_fields()


def test_a_class_of_a_union_may_carry_its_unknown_fields() -> None:
    schema = Schema("State", type=Carrying | Pool)
    value = loaded(schema, b'{"kind":"lease","zone":"z"}')
    assert orjson.loads(stored(schema, value)) == {"kind": "lease", "zone": "z"}


members = st.sampled_from(["kind", "members", "first", "by_name", "holder", "free"]) | text
anything = st.recursive(
    json_values | st.sampled_from(["lease", "pool", "group"]),
    lambda below: st.lists(below, max_size=3) | st.dictionaries(members, below, max_size=5),
    max_leaves=12,
)


@given(anything, st.sampled_from([STATE, GROUP]), st.integers(1, 2))
@settings(max_examples=times(60, 1000))
def test_any_json_is_read_and_written_the_same_or_refused(plain: Any, schema: Schema[Any], version: int) -> None:
    data = orjson.dumps(plain)
    try:
        value = loaded(schema, data, version)
    except (SchemaMismatch, CheckpointTooNew):
        return
    header, left = rewritten(schema, data, version)
    assert loaded(schema, orjson.dumps(left), header.version, header.readable_by) == value


@dataclass
class Untagged:
    free: int


@dataclass
class AlsoUntagged:
    used: int


@dataclass
class OtherTag:
    type: Literal["other"] = "other"


@dataclass
class SameTag:
    kind: Literal["pool", "same"] = "pool"


@dataclass
class Both:
    kind: Literal["pool"] = "pool"
    type: Literal["both"] = "both"


@dataclass
class Numbered:
    kind: Literal[1, True]


@pytest.mark.parametrize(
    ("cls", "says"),
    [
        (Untagged | AlsoUntagged, "Untagged and AlsoUntagged look alike in JSON: give each a Literal field"),
        (Pool | Untagged, "Pool and Untagged look alike in JSON: Untagged has no Literal field 'kind'"),
        (Untagged | Pool, "Untagged and Pool look alike in JSON: Untagged has no Literal field 'kind'"),
        (Lease | Pool | OtherTag, "OtherTag has no Literal field 'kind' that tells them apart"),
        (Pool | SameTag, "a value of the Literal field 'kind' belongs to more than one of them"),
        (Lease | Pool | dict[str, int], "look alike in JSON"),
    ],
)
def test_classes_that_cannot_be_told_apart_are_refused_when_the_schema_is_made(cls: Any, says: str) -> None:
    @dataclass
    class Holder:
        value: cls

    Holder.__annotations__["value"] = cls
    for annotation in (cls, list[cls], Holder):
        with pytest.raises(TypeError) as caught:
            Schema("State", type=annotation)
        assert says in str(caught.value)
        assert "encode=" in str(caught.value)


def test_the_first_literal_field_that_tells_all_of_them_apart_is_the_tag() -> None:
    schema = Schema("State", type=Both | OtherTag)
    for value in (Both(), OtherTag()):
        assert loaded(schema, stored(schema, value)) == value


def test_true_is_not_one() -> None:
    schema = Schema("State", type=Numbered | Pool)
    assert loaded(schema, b'{"kind":true}').kind is True
    assert loaded(schema, b'{"kind":1}').kind == 1
