"""encode= and decode= with the models of others, and what an encode= and decode= pair does not know."""

from __future__ import annotations

from typing import Any

import attrs
import msgspec
import orjson
import pydantic
import pytest

from checkpointmanager import CheckpointManager, MemoryStore, Schema, SchemaMismatch, UnstorableValue
from checkpointmanager._format.reason import TooNew
from checkpointmanager._schema import Misfit

from .test_schema import SECRET, everything_told


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


PYDANTIC = Schema("Lease", encode=lambda lease: lease.model_dump(mode="json"), decode=PydanticLease.model_validate)
MSGSPEC = Schema("Lease", encode=msgspec.to_builtins, decode=lambda plain: msgspec.convert(plain, MsgspecLease))
ATTRS = Schema("Lease", encode=attrs.asdict, decode=attrs_lease)
MODELS = [
    pytest.param(PYDANTIC, PydanticLease, PydanticTag, id="pydantic"),
    pytest.param(MSGSPEC, MsgspecLease, MsgspecTag, id="msgspec"),
    pytest.param(ATTRS, AttrsLease, AttrsTag, id="attrs"),
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
    store = MemoryStore()
    value = lease(holder="a", tag=tag(name="t"), tags=[tag(name="u")])
    CheckpointManager(store, schema).create_checkpoint("k", value)
    assert CheckpointManager(store, schema).get_checkpoint("k").data == value


@pytest.mark.parametrize(("schema", "lease", "tag"), MODELS)
def test_what_the_model_does_not_know_is_kept_from_a_newer_version(schema: Schema[Any], lease: Any, tag: Any) -> None:
    """Along members of objects. A list's elements cannot be told from new ones, so theirs are not."""
    store = MemoryStore()
    CheckpointManager(store, Schema("Lease", 2, readable_by=1)).create_checkpoint("k", NEWER)

    def change(old: Any) -> Any:
        assert old == lease(holder="a", seconds=30, tag=tag(name="t"), tags=[tag(name="u")])
        old.seconds = 31
        return old

    updated = CheckpointManager(store, schema).update_checkpoint("k", change)
    assert updated.version == 2
    expected = {**NEWER, "seconds": 31, "tags": [{"name": "u"}]}
    assert CheckpointManager(store, Schema("Lease", 2)).get_checkpoint("k").data == expected


@pytest.mark.parametrize(("schema", "lease", "tag"), MODELS)
def test_what_the_model_does_not_know_is_dropped_from_the_same_version(
    schema: Schema[Any], lease: Any, tag: Any
) -> None:
    value, unknowns = schema.decode(orjson.dumps(NEWER), 1, 1)
    rewritten = orjson.loads(schema.encode(value, unknowns).json)
    assert rewritten == {"holder": "a", "seconds": 30, "tag": {"name": "t"}, "tags": [{"name": "u"}]}


@pytest.mark.parametrize(("schema", "lease", "tag"), MODELS)
@pytest.mark.parametrize("newer", [False, True])
def test_what_the_model_refuses_is_told_without_its_text(
    schema: Schema[Any], lease: Any, tag: Any, newer: bool
) -> None:
    """pydantic quotes the input, attrs shows the value: so nothing of their errors goes on but the type."""
    data = orjson.dumps({"holder": "a", "seconds": SECRET})
    with pytest.raises(TooNew if newer else Misfit) as caught:
        schema.decode(data, 2 if newer else 1, 1)
    assert "$ is refused by decode with" in str(caught.value)
    assert "Error" in str(caught.value)
    assert SECRET not in everything_told(caught.value)


def test_a_refusal_reaches_the_caller_as_a_mismatch_of_this_one_file() -> None:
    store = MemoryStore()
    manager = CheckpointManager(store, Schema("Lease"))
    manager.create_checkpoint("good", {"holder": "a"})
    manager.create_checkpoint("bad", {"holder": [SECRET]})
    loaded = CheckpointManager(store, PYDANTIC).load()
    assert loaded.checkpoints["good"].data == PydanticLease(holder="a")
    assert isinstance(loaded.problems["bad"], SchemaMismatch)
    assert "ValidationError" in str(loaded.problems["bad"])
    assert SECRET not in everything_told(loaded.problems["bad"])


@pytest.mark.parametrize(
    ("plain", "where"), [({"a": {1, 2}}, "$[*]"), ({"a": [b"x"]}, "$[*][0]"), ({1: 2}, "$"), ((1,), "$")]
)
def test_what_encode_returns_must_be_plain(plain: Any, where: str) -> None:
    schema: Schema[Any] = Schema("Lease", encode=lambda _: plain, decode=lambda plain: plain)
    with pytest.raises(UnstorableValue) as caught:
        schema.encode(object())
    assert caught.value.where == where


def test_a_newer_file_that_could_not_be_written_back_is_too_new() -> None:
    schema: Schema[Any] = Schema("Lease", encode=lambda _: {"a": {1}}, decode=lambda plain: plain)
    with pytest.raises(TooNew, match=r"but \$\[\*\] is of type set"):
        schema.decode(b"{}", 2, 1)


def test_what_encode_raises_is_the_callers_own() -> None:
    def fail(_: Any) -> Any:
        raise LookupError("no such thing")

    schema: Schema[Any] = Schema("Lease", encode=fail, decode=lambda plain: plain)
    with pytest.raises(LookupError, match="no such thing"):
        schema.encode({})
    with pytest.raises(TooNew, match="refused by encode with LookupError"):  # reading asks what is not known
        schema.decode(b"{}", 2, 1)


class Thing:
    def __init__(self, plain: dict[str, Any]) -> None:
        self.__dict__.update({name: plain.pop(name) for name in ("a", "below") if name in plain})


def test_a_dict_that_belongs_to_the_caller_is_not_written_into() -> None:
    """vars() gives the object's own dict, and decode= may take its argument apart."""
    schema: Schema[Any] = Schema("Thing", encode=vars, decode=Thing)
    thing, unknowns = schema.decode(b'{"a":1,"below":{"b":2},"more":3}', 2, 1)
    encoded = schema.encode(thing, unknowns)
    assert orjson.loads(encoded.json) == {"a": 1, "below": {"b": 2}, "more": 3}
    assert vars(thing) == {"a": 1, "below": {"b": 2}}
