"""encode= and decode= with models of other libraries, and fields that such a pair does not know."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import attrs
import msgspec
import orjson
import pydantic
import pytest

from checkpointmanager import CheckpointManager, CheckpointTooNew, MemoryStore, Schema, SchemaMismatch

from .files import SECRET, everything_shown, loaded, refusal, rewritten, stored


class PydanticTag(pydantic.BaseModel):
    name: str


class PydanticLease(pydantic.BaseModel):
    holder: str
    seconds: int = 60
    tag: PydanticTag | None = None
    tags: list[PydanticTag] = []


class MsgspecTag(msgspec.Struct):
    name: str


class MsgspecLease(msgspec.Struct):
    holder: str
    seconds: int = 60
    tag: MsgspecTag | None = None
    tags: list[MsgspecTag] = []


@attrs.define
class AttrsTag:
    name: str = attrs.field(validator=attrs.validators.instance_of(str))


@attrs.define
class AttrsLease:
    holder: str = attrs.field(validator=attrs.validators.instance_of(str))
    seconds: int = attrs.field(default=60, validator=attrs.validators.instance_of(int))
    tag: AttrsTag | None = None
    tags: list[AttrsTag] = attrs.field(factory=list)


def attrs_lease(plain: Any) -> AttrsLease:
    known = {name: plain[name] for name in attrs.fields_dict(AttrsLease) if name in plain}
    known["tag"] = AttrsTag(plain["tag"]["name"]) if plain.get("tag") else None
    known["tags"] = [AttrsTag(tag["name"]) for tag in plain.get("tags", [])]
    return AttrsLease(**known)


def schema_of(lease: Any, version: int = 1) -> Schema[Any]:
    pairs: dict[Any, tuple[Callable[[Any], Any], Callable[[Any], Any]]] = {
        PydanticLease: (lambda lease: lease.model_dump(mode="json"), PydanticLease.model_validate),
        MsgspecLease: (msgspec.to_builtins, lambda plain: msgspec.convert(plain, MsgspecLease)),
        AttrsLease: (attrs.asdict, attrs_lease),
    }
    encode, decode = pairs[lease]
    return Schema("Lease", version, encode=encode, decode=decode)


PYDANTIC = schema_of(PydanticLease)
MODELS = [
    pytest.param(PYDANTIC, PydanticLease, PydanticTag, id="pydantic"),
    pytest.param(schema_of(MsgspecLease), MsgspecLease, MsgspecTag, id="msgspec"),
    pytest.param(schema_of(AttrsLease), AttrsLease, AttrsTag, id="attrs"),
]
NEWER = {
    "holder": "a",
    "seconds": 30,
    "tag": {"name": "t", "colour": "red"},
    "tags": [{"name": "u", "colour": "blue"}],
    "owner": {"uid": 7},
}


@pytest.mark.parametrize(("schema", "lease", "tag"), MODELS)
def test_a_model_comes_back_as_it_was(schema: Schema[Any], lease: Any, tag: Any) -> None:
    value = lease(holder="a", tag=tag(name="t"), tags=[tag(name="u")])
    assert loaded(schema, stored(schema, value)) == value


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize(("schema", "lease", "tag"), MODELS)
def test_what_the_model_does_not_know_is_kept_from_its_version_and_a_newer_one(
    schema: Schema[Any], lease: Any, tag: Any, version: int
) -> None:
    """Along members of objects. Elements of a list cannot be distinguished from new ones, so theirs are not kept."""

    def change(old: Any) -> Any:
        assert old == lease(holder="a", seconds=30, tag=tag(name="t"), tags=[tag(name="u")])
        old.seconds = 31
        return old

    header, left = rewritten(schema, orjson.dumps(NEWER), version, change=change)
    assert header.version == version
    assert left == {**NEWER, "seconds": 31, "tags": [{"name": "u"}]}


@pytest.mark.parametrize("lease", [PydanticLease, MsgspecLease, AttrsLease])
def test_what_the_model_does_not_know_is_dropped_from_an_older_version(lease: Any) -> None:
    _, left = rewritten(schema_of(lease, 2), orjson.dumps(NEWER))
    assert left == {"holder": "a", "seconds": 30, "tag": {"name": "t"}, "tags": [{"name": "u"}]}


def test_reading_a_file_of_the_same_version_calls_decode_once_and_encode_never() -> None:
    """A restart reads thousands: only an update needs the fields that the pair does not know."""
    calls: list[str] = []

    def encode(value: Any) -> Any:
        calls.append("encode")
        return {"known": value}

    def decode(plain: Any) -> Any:
        calls.append("decode")
        return plain["known"]

    schema: Schema[Any] = Schema("Lease", encode=encode, decode=decode)
    store = MemoryStore()
    CheckpointManager(store, Schema("Lease")).create_checkpoint("k", {"known": 1, "more": 2})
    manager = CheckpointManager(store, schema)

    manager.load()
    assert calls == ["decode"]

    manager.update_checkpoint("k", lambda value: value + 1)
    assert CheckpointManager(store, Schema("Lease")).get_checkpoint("k").data == {"known": 2, "more": 2}


@pytest.mark.parametrize("version", [1, 2])
def test_what_decode_takes_out_of_its_argument_is_not_lost(version: int) -> None:
    def decode(plain: Any) -> Any:
        known = plain["known"]
        plain.clear()
        return known

    schema: Schema[Any] = Schema("Lease", encode=lambda value: {"known": value}, decode=decode)
    assert rewritten(schema, b'{"known":1,"more":2}', version)[1] == {"known": 1, "more": 2}


def test_what_is_removed_from_a_foreign_model_stays_removed() -> None:
    schema: Schema[Any] = Schema("Lease", encode=lambda value: {"pods": value}, decode=lambda plain: plain["pods"])
    data = b'{"pods":{"a":{"x":1},"b":{"x":2}},"more":1}'
    _, left = rewritten(schema, data, change=lambda pods: {"b": pods["b"]})
    assert left == {"pods": {"b": {"x": 2}}, "more": 1}


@pytest.mark.parametrize(("schema", "lease", "tag"), MODELS)
@pytest.mark.parametrize("newer", [False, True])
def test_what_the_model_refuses_is_reported_without_its_text(
    schema: Schema[Any], lease: Any, tag: Any, newer: bool
) -> None:
    """pydantic quotes the input, attrs shows the value: so only the type of their errors is passed on."""
    data = orjson.dumps({"holder": "a", "seconds": SECRET})
    with pytest.raises(CheckpointTooNew if newer else SchemaMismatch) as caught:
        loaded(schema, data, 2 if newer else 1)
    assert "$ is refused by decode with" in str(caught.value)
    assert "Error" in str(caught.value)
    assert SECRET not in everything_shown(caught.value)


@pytest.mark.parametrize(
    ("plain", "where"), [({"a": {1, 2}}, "$[*]"), ({"a": [b"x"]}, "$[*][0]"), ({1: 2}, "$"), ((1,), "$")]
)
def test_what_encode_returns_must_be_plain(plain: Any, where: str) -> None:
    schema: Schema[Any] = Schema("Lease", encode=lambda _: plain, decode=lambda plain: plain)
    assert refusal(schema, object()).where == where


def test_a_newer_file_that_could_not_be_written_back_is_too_new() -> None:
    schema: Schema[Any] = Schema("Lease", encode=lambda _: {"a": {1}}, decode=lambda plain: plain)
    with pytest.raises(CheckpointTooNew, match=r"but \$\[\*\] is of type set"):
        loaded(schema, b"{}", 2)


def test_what_encode_raises_is_the_callers_own() -> None:
    def fail(_: Any) -> Any:
        raise LookupError("no such thing")

    schema: Schema[Any] = Schema("Lease", encode=fail, decode=lambda plain: plain)
    with pytest.raises(LookupError, match="no such thing"):
        stored(schema, {})
    with pytest.raises(CheckpointTooNew, match="refused by encode with LookupError"):  # it looks for unknown fields
        loaded(schema, b"{}", 2)


class Thing:
    def __init__(self, plain: dict[str, Any]) -> None:
        self.__dict__.update({name: plain.pop(name) for name in ("a", "below") if name in plain})


def test_a_dict_that_belongs_to_the_caller_is_not_written_into() -> None:
    """vars() gives the object's own dict, and decode= may take its argument apart."""
    schema: Schema[Any] = Schema("Thing", encode=vars, decode=Thing)
    things: list[Thing] = []

    def seen(thing: Thing) -> Thing:
        things.append(thing)
        return thing

    _, left = rewritten(schema, b'{"a":1,"below":{"b":2},"more":3}', 2, change=seen)
    assert left == {"a": 1, "below": {"b": 2}, "more": 3}
    assert [vars(thing) for thing in things] == [{"a": 1, "below": {"b": 2}}]
