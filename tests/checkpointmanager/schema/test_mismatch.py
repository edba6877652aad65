"""The checksum is right and the program does not fit: an error of the program, which never costs the file."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

import pydantic
import pytest

from checkpointmanager import (
    CheckpointError,
    CheckpointManager,
    CheckpointTooNew,
    CorruptCheckpoint,
    MemoryStore,
    Outcome,
    Schema,
    SchemaMismatch,
)

from .files import SECRET, everything_shown


@dataclass
class Lease:
    holder: str


V1 = Schema("Lease", 1, type=Lease)


def migration(plain: Any) -> Any:
    return {"holder": plain["owner"]}


def refuse(plain: Any) -> Any:
    raise ValueError(f"cannot use {plain}")


@dataclass
class WithMore:
    holder: str
    seconds: int


@dataclass
class OfAnotherType:
    holder: int


NO_SECONDS: dict[str, int] = {}


@dataclass
class WithBadFactory:
    holder: str
    seconds: int = field(default_factory=lambda: NO_SECONDS["seconds"])


@dataclass
class Validated:
    holder: str

    def __post_init__(self) -> None:
        refuse(self.holder)


class Holder(Enum):
    ONLY = "only"

    @classmethod
    def _missing_(cls, value: object) -> Any:
        refuse(value)


@dataclass
class Chosen:
    holder: Holder


class Model(pydantic.BaseModel):
    holder: int


@dataclass(frozen=True)
class Unhashable:
    holder: str

    def __hash__(self) -> int:
        raise LookupError(self.holder)


def in_a_set(plain: Any) -> Any:
    return [plain]


def name_of_model(model: Any) -> Any:
    return model.model_dump(mode="json")


# name: the schema of the next release, where it does not fit, and what was raised there
PROGRAMS: dict[str, tuple[Schema[Any], str, str | None]] = {
    "a migration with a KeyError": (Schema("Lease", 2, type=Lease, migrations={1: migration}), "$", "KeyError"),
    "a migration that quotes": (Schema("Lease", 2, type=Lease, migrations={1: refuse}), "$", "ValueError"),
    "a migration to nothing": (Schema("Lease", 2, type=Lease, migrations={1: lambda _: None}), "$", None),
    "a field without default": (Schema("Lease", 1, type=WithMore), "$.seconds", None),
    "another type": (Schema("Lease", 1, type=OfAnotherType), "$.holder", None),
    "a default factory that raises": (Schema("Lease", 1, type=WithBadFactory), "$.seconds", "KeyError"),
    "a class that validates": (Schema("Lease", 1, type=Validated), "$", "ValueError"),
    "an enum with _missing_": (Schema("Lease", 1, type=Chosen), "$.holder", None),
    "a hash that raises": (
        Schema("Lease", 2, type=frozenset[Unhashable], migrations={1: in_a_set}),
        "$",
        "LookupError",
    ),
    "what no set can hold": (Schema("Lease", 2, type=set[Any], migrations={1: in_a_set}), "$", "TypeError"),
    "decode= that raises": (Schema("Lease", 1, encode=str, decode=refuse), "$", "ValueError"),
    "a model of others": (
        Schema("Lease", 1, encode=name_of_model, decode=Model.model_validate),
        "$",
        "ValidationError",
    ),
}
each_program = pytest.mark.parametrize("name", PROGRAMS)


def written(holder: str = SECRET) -> MemoryStore:
    """Two generations of one key, as the release before wrote them."""
    store = MemoryStore()
    manager = CheckpointManager(store, V1)
    manager.create_checkpoint("a", Lease("first"))
    manager.create_checkpoint("a", Lease(holder))
    return store


def mismatch(action: Callable[..., object], *arguments: Any, **options: Any) -> SchemaMismatch:
    with pytest.raises(SchemaMismatch) as caught:
        action(*arguments, **options)
    return caught.value


@each_program
def test_it_is_named_with_its_place_and_cause_and_never_called_corrupt(name: str) -> None:
    schema, where, cause = PROGRAMS[name]
    store = written()
    error = mismatch(CheckpointManager(store, schema).get_checkpoint, "a")

    assert isinstance(error, CheckpointError)
    assert not isinstance(error, CorruptCheckpoint)
    assert (error.key, error.path, error.where) == ("a", store.path_of("a"), where)
    assert (error.version, error.generation) == (1, 2)
    assert str(error).startswith(f"{error.path}: version 1 of the data does not fit this program: {where} {error.why}.")
    assert "the file is whole" in str(error)
    assert "diagnose" not in str(error)
    assert (type(error.__cause__).__name__ if error.__cause__ else None) == cause
    assert SECRET not in everything_shown(error)


@each_program
def test_every_verb_reports_it_and_touches_nothing(name: str) -> None:
    store = written()
    CheckpointManager(store, V1).create_checkpoint("b", Lease(SECRET))
    before = (dict(store.current), dict(store.previous))
    manager = CheckpointManager(store, PROGRAMS[name][0])

    mismatch(manager.update_checkpoint, "a", lambda value: value)
    mismatch(manager.recover_checkpoint, "a")
    mismatch(manager.recover_checkpoint, "a", rollback=True)
    loaded = manager.load()

    assert [(key, type(problem)) for key, problem in loaded.problems.items()] == [
        ("a", SchemaMismatch),
        ("b", SchemaMismatch),
    ]
    assert not loaded.checkpoints
    assert (manager.verify().intact, manager.verify().problems) == (2, {})
    assert manager.previous_checkpoint("a") is None
    assert (store.current, store.previous, store.quarantined()) == (*before, {})


def test_create_makes_it_the_previous_generation_but_nothing_is_rolled_back_to_it() -> None:
    store = written()
    before = store.current["a"]
    manager = CheckpointManager(store, PROGRAMS["a field without default"][0])

    assert manager.create_checkpoint("a", WithMore("b", 3)).generation == 3

    assert (store.previous["a"], store.quarantined()) == (before, {})
    assert manager.previous_checkpoint("a") is None
    store.current["a"] = b"rubbish"
    assert manager.recover_checkpoint("a", rollback=True).outcome is Outcome.HOPELESS
    assert store.current["a"] == b"rubbish"


def test_a_flipped_bit_in_it_is_mended_and_nothing_rolled_back() -> None:
    store = written("x")
    whole = store.current["a"]
    store.current["a"] = whole[:-9] + bytes([whole[-9] ^ 1]) + whole[-8:]
    manager = CheckpointManager(store, PROGRAMS["a migration with a KeyError"][0])

    error = mismatch(manager.recover_checkpoint, "a", rollback=True)

    assert error.generation == 2
    assert store.current["a"] == whole
    mended = Schema("Lease", 2, type=Lease, migrations={1: dict})
    assert CheckpointManager(store, mended).get_checkpoint("a").data == Lease("x")


def test_the_cause_leads_to_the_line_that_raised() -> None:
    manager = CheckpointManager(written(), PROGRAMS["a migration with a KeyError"][0])
    error = mismatch(manager.get_checkpoint, "a")

    assert isinstance(error.__cause__, KeyError)
    assert error.__cause__.args == ()
    assert traceback.extract_tb(error.__cause__.__traceback__)[-1].name == "migration"
    assert 'plain["owner"]' in "".join(traceback.format_exception(error))


class Talkative(Exception):
    """Shows data even without arguments."""

    def __str__(self) -> str:
        return SECRET


ERRORS: list[Callable[[], Exception]] = [
    lambda: KeyError(SECRET),
    lambda: OSError(5, SECRET, SECRET),
    lambda: UnicodeDecodeError("utf-8", SECRET.encode(), 0, 1, SECRET),
    lambda: SyntaxError(SECRET, (SECRET, 1, 1, SECRET)),
    lambda: ImportError(SECRET, name=SECRET),
    lambda: StopIteration(SECRET),
    lambda: ExceptionGroup(SECRET, [ValueError(SECRET)]),
    Talkative,
    lambda: type("Local", (ValueError,), {})(SECRET),
]


@pytest.mark.parametrize("make", ERRORS, ids=[type(make()).__name__ for make in ERRORS])
def test_no_text_of_any_error_gets_out(make: Callable[[], Exception]) -> None:
    def fail(_: Any) -> Any:
        error = make()
        error.add_note(SECRET)
        raise error from ValueError(SECRET)

    schema: Schema[Any] = Schema("Lease", 1, encode=str, decode=fail)
    error = mismatch(CheckpointManager(written(), schema).get_checkpoint, "a")

    assert type(error.__cause__).__name__ == type(make()).__name__
    assert traceback.extract_tb(error.__cause__.__traceback__ if error.__cause__ else None)[-1].name == "fail"
    assert SECRET not in everything_shown(error)


@pytest.mark.parametrize("name", [name for name, program in PROGRAMS.items() if program[0].version == 1])
def test_the_same_in_a_newer_file_stays_too_new(name: str) -> None:
    schema, _, cause = PROGRAMS[name]
    store = MemoryStore()
    CheckpointManager(store, Schema("Lease", 3, readable_by=1)).create_checkpoint("a", {"holder": SECRET})
    with pytest.raises(CheckpointTooNew) as caught:
        CheckpointManager(store, schema).get_checkpoint("a")
    assert (type(caught.value.__cause__).__name__ if caught.value.__cause__ else None) == cause
    assert SECRET not in everything_shown(caught.value)
