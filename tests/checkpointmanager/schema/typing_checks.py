"""What a type checker must infer for the public names. mypy and pyright check it; test_typing.py runs it, too."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, assert_type

from checkpointmanager import (
    ANY_KIND,
    Batch,
    CacheEntry,
    Checkpoint,
    CheckpointCache,
    CheckpointError,
    CheckpointManager,
    Loaded,
    MemoryStore,
    Recovery,
    RecoveryPlan,
    Schema,
    Store,
    Verified,
)
from checkpointmanager.aio import AsyncCheckpointCache


@dataclass
class Claim:
    name: str


@dataclass
class Lease:
    kind: Literal["lease"] = "lease"


@dataclass
class Pool:
    kind: Literal["pool"] = "pool"


class Model:
    """As pydantic or attrs would have it."""

    def __init__(self, number: int) -> None:
        self.number = number


def encode(model: Model) -> dict[str, int]:
    return {"number": model.number}


def decode(plain: Any) -> Model:
    return Model(plain["number"])


def of_a_dataclass() -> None:
    schema = Schema("Claim", version=2, type=Claim, migrations={1: lambda plain: plain})
    assert_type(schema, Schema[Claim])
    with CheckpointManager(MemoryStore(), schema) as manager:
        assert_type(manager, CheckpointManager[Claim])
        assert_type(manager.create_checkpoint("a", Claim("a")), Checkpoint[Claim])
        assert_type(manager.get_checkpoint("a"), Checkpoint[Claim])
        assert_type(manager.get_checkpoint("a").data, Claim)
        assert_type(manager.get_checkpoint("a").from_this_boot, bool | None)
        assert_type(manager.get_checkpoint("x", None), Checkpoint[Claim] | None)
        assert_type(manager.get_checkpoint("x", default=0), Checkpoint[Claim] | int)
        assert_type(manager.previous_checkpoint("a"), Checkpoint[Claim] | None)
        assert_type(manager.update_checkpoint("a", lambda claim: Claim(claim.name + "x")).data, Claim)
        assert_type(manager.update_checkpoint("u", lambda claim: Claim(claim.name + "x"), Claim("u")).data, Claim)
        assert_type(manager.update_checkpoint("v", lambda claim: claim or Claim("v"), default=None), Checkpoint[Claim])
        assert_type(manager.load(), Loaded[Claim])
        assert_type(manager.load(repair=True).recoveries, Mapping[str, Recovery])
        for key, checkpoint in manager.load().checkpoints.items():
            assert_type((key, checkpoint), tuple[str, Checkpoint[Claim]])
        for problem in manager.load().problems.values():
            assert_type(problem, CheckpointError)
        assert_type(manager.verify(), Verified)
        assert_type(manager.recover_checkpoint("a"), Recovery)
        assert_type(manager.plan_recovery("a"), RecoveryPlan)
        assert_type(manager.plan_recovery("a").apply(), Recovery)
        assert_type(manager.list_checkpoints(), list[str])
        with manager.batch() as batch:
            assert_type(batch, Batch[Claim])
            batch.create_checkpoint("b", Claim("b"))
    manager.create_checkpoint("c", Claim("c"))


def of_a_pair() -> None:
    schema = Schema("Model", encode=encode, decode=decode)
    assert_type(schema, Schema[Model])
    manager = CheckpointManager(MemoryStore(), schema)
    assert_type(manager, CheckpointManager[Model])
    manager.create_checkpoint("a", Model(1))
    assert_type(manager.get_checkpoint("a").data.number, int)


def of_plain_types() -> None:
    assert_type(Schema("Names", type=list[str]), Schema[list[str]])
    manager = CheckpointManager(MemoryStore(), Schema("Ports", type=dict[str, int]))
    manager.create_checkpoint("a", {"http": 80})
    assert_type(manager.get_checkpoint("a").data, dict[str, int])


def of_unions() -> None:
    assert_type(Schema("State", type=Lease | Pool), Schema[Lease | Pool])
    assert_type(Schema("State", type=Claim | None), Schema[Claim | None])
    manager = CheckpointManager(MemoryStore(), Schema("State", version=2, type=Lease | Pool))
    manager.create_checkpoint("a", Pool())
    assert_type(manager.get_checkpoint("a").data, Lease | Pool)


def of_a_cache() -> None:
    cache = CheckpointCache(MemoryStore(), Schema("Claim", type=Claim))
    assert_type(cache, CheckpointCache[Claim])
    assert_type(CheckpointCache(CheckpointManager(MemoryStore(), Schema("Claim", type=Claim))), CheckpointCache[Claim])
    cache.put("a", Claim("a"))
    assert_type(cache["a"], Claim)
    assert_type(cache.get("a"), Claim | None)
    assert_type(cache.get("a", 7), Claim | int)
    assert_type(cache.good(), Mapping[str, Claim])
    assert_type([*cache.items()], list[tuple[str, Claim]])
    assert_type([*cache.values()], list[Claim])
    assert_type(cache.entry("a"), CacheEntry[Claim] | None)


async def of_an_async_cache() -> None:
    cache = await AsyncCheckpointCache.open(lambda: CheckpointCache(MemoryStore(), Schema("Claim", type=Claim)))
    assert_type(cache, AsyncCheckpointCache[Claim])
    async with cache:
        await cache.put("a", Claim("a"))
        assert_type(cache.cache["a"], Claim)


def of_anything() -> None:
    assert_type(Schema("Any"), Schema[Any])
    manager = CheckpointManager(MemoryStore())
    assert_type(manager, CheckpointManager[Any])
    manager.create_checkpoint("a", [1, "two", None])
    assert_type(manager.get_checkpoint("a").data, Any)
    assert_type(CheckpointManager(MemoryStore(), Schema("Any")), CheckpointManager[Any])
    assert_type(CheckpointManager(MemoryStore(), ANY_KIND), CheckpointManager[Any])


def a_memory_store_is_a_store() -> Store:
    return MemoryStore()


def what_must_not_pass(manager: CheckpointManager[Claim], state: CheckpointManager[Lease | Pool]) -> None:
    """Each comment is an error if the checker does not complain."""
    state.create_checkpoint("a", Claim("a"))  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    manager.create_checkpoint("a", "no claim")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    manager.update_checkpoint("a", lambda claim: claim.name)  # type: ignore[arg-type,return-value]  # pyright: ignore
    manager.batch().create_checkpoint("a", 5)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    manager.get_checkpoint(5)  # type: ignore[call-overload]  # pyright: ignore
    print(manager.get_checkpoint("a", None).data)  # type: ignore[union-attr]  # pyright: ignore
    manager.update_checkpoint("a", lambda claim: claim, 5)  # type: ignore[call-overload]  # pyright: ignore
    Schema("Model", encode=encode)  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue]
