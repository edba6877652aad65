"""Reading everything: one bad file costs one checkpoint, and readers look twice."""

from __future__ import annotations

import gc
from collections.abc import Callable
from pathlib import Path

import pytest

from checkpointmanager import (
    CheckpointManager,
    CheckpointTooNew,
    CorruptCheckpoint,
    Event,
    EventKind,
    MemoryStore,
    Reason,
    Schema,
    SchemaMismatch,
    WrongKind,
)
from checkpointmanager.testing import damage

from ..leases import BOOT, LEASES, NEW, OLD, Lease, LeaseManager


@pytest.fixture
def zoo(directory: Path) -> Path:
    """Two good checkpoints among one of each bad sort."""
    with CheckpointManager(directory, Schema("Lease", version=2, type=Lease)) as manager:
        manager.create_checkpoint("newer", OLD)
    with CheckpointManager(directory, Schema("Claim", type=Lease)) as manager:
        manager.create_checkpoint("foreign", OLD)
    with CheckpointManager(directory, Schema("Lease")) as manager:
        manager.create_checkpoint("shapeless", {"holder": 5})
    with CheckpointManager(directory, LEASES, boot_id=BOOT) as manager:
        for key in ("good-1", "good-2", "flipped", "original"):
            manager.create_checkpoint(key, OLD)
        manager.remove_checkpoint("missing")
    damage.flip_bit(directory, "flipped")
    (directory / "copied.json").write_bytes((directory / "original.json").read_bytes())
    (directory / "empty.json").write_bytes(b"")
    (directory / "nul.json").write_bytes(bytes(500))
    (directory / "torn.json").write_bytes((directory / "original.json").read_bytes()[:-40])
    (directory / "longer.json").write_bytes((directory / "original.json").read_bytes() + b"\n{}")
    (directory / "folder.json").mkdir()
    (directory / "link.json").symlink_to(directory / "original.json")
    return directory


REASONS = {
    "copied": Reason.WRONG_KEY,
    "empty": Reason.EMPTY,
    "flipped": Reason.CHECKSUM_MISMATCH,
    "folder": Reason.NOT_A_FILE,
    "link": Reason.NOT_A_FILE,
    "longer": Reason.TRAILING_BYTES,
    "nul": Reason.NUL_FILLED,
    "torn": Reason.TRUNCATED,
}


def test_load_gives_every_good_checkpoint_and_names_the_others(zoo: Path) -> None:
    with CheckpointManager(zoo, LEASES, boot_id=BOOT) as manager:
        loaded = manager.load()

    assert {key: found.data for key, found in loaded.checkpoints.items()} == dict.fromkeys(
        ["good-1", "good-2", "original"], OLD
    )
    reasons = {key: error.reason for key, error in loaded.problems.items() if isinstance(error, CorruptCheckpoint)}
    assert reasons == REASONS
    assert isinstance(loaded.problems["newer"], CheckpointTooNew)
    assert isinstance(loaded.problems["foreign"], WrongKind)
    assert isinstance(loaded.problems["shapeless"], SchemaMismatch)
    assert len(loaded.problems) == len(REASONS) + 3
    assert all(str(zoo / f"{key}.json") in str(error) for key, error in loaded.problems.items())


def test_verify_finds_the_same_except_what_only_decoding_shows(zoo: Path) -> None:
    with CheckpointManager(zoo, LEASES) as manager:
        verified = manager.verify()
        loaded = manager.load()

    decoded_only = {"newer", "shapeless"}
    assert verified.problems.keys() == loaded.problems.keys() - decoded_only
    assert verified.intact == len(loaded.checkpoints) + len(decoded_only)


def test_verify_changes_nothing(zoo: Path) -> None:
    before = {path.name: path.read_bytes() for path in zoo.iterdir() if path.is_file()}

    with CheckpointManager(zoo, LEASES, read_only=True) as manager:
        manager.verify()
        manager.load()

    assert {path.name: path.read_bytes() for path in zoo.iterdir() if path.is_file()} == before


def test_load_of_nothing_is_nothing(manager: LeaseManager) -> None:
    assert (manager.load().checkpoints, manager.load().problems, manager.verify().intact) == ({}, {}, 0)


def test_load_leaves_the_garbage_collector_as_it_was(manager: LeaseManager) -> None:
    manager.load()
    assert gc.isenabled()
    gc.disable()
    try:
        manager.load()
        assert not gc.isenabled()
    finally:
        gc.enable()


class Replaced(MemoryStore):
    """The file is replaced between a reader's first look and its second."""

    def __init__(self, between: Callable[[Replaced], object]) -> None:
        super().__init__()
        self.between = between
        self.looks = 0

    def read(self, key: str, *, previous: bool = False) -> bytes:
        self.looks += 1
        if self.looks == 2:
            self.between(self)
        return super().read(key, previous=previous)


def whole(data: Lease) -> bytes:
    store = MemoryStore()
    CheckpointManager(store, LEASES).create_checkpoint("a", data)
    return store.current["a"]


READS: dict[str, Callable[[LeaseManager], object]] = {
    "get": lambda manager: manager.get_checkpoint("a").data,
    "load": lambda manager: manager.load().checkpoints["a"].data,
    "verify": lambda manager: NEW if manager.verify().intact else None,
    "update": lambda manager: manager.update_checkpoint("a", lambda lease: lease).data,
}


@pytest.mark.parametrize("read", READS)
@pytest.mark.parametrize("first", [b"", b"recycled", whole(OLD)[:-3]], ids=["empty", "other", "torn"])
def test_a_file_replaced_while_it_was_read_is_no_damage(read: str, first: bytes) -> None:
    events: list[Event] = []
    store = Replaced(lambda store: store.current.update(a=whole(NEW)))
    store.current["a"] = first
    manager = CheckpointManager(store, LEASES, on_event=events.append)

    assert READS[read](manager) == NEW
    assert (store.looks, events) == (2, [])


GONE: dict[str, Callable[[LeaseManager], object]] = {
    "get": lambda manager: manager.get_checkpoint("a", None),
    "load": lambda manager: manager.load().problems or None,
    "verify": lambda manager: manager.verify().problems or None,
}


@pytest.mark.parametrize("read", GONE)
def test_a_file_removed_while_it_was_read_is_missing_and_no_damage(read: str) -> None:
    store = Replaced(lambda store: store.current.clear())
    store.current["a"] = b"torn"

    assert GONE[read](CheckpointManager(store, LEASES)) is None
    assert store.looks == 2


def test_damage_is_reported_after_exactly_two_looks() -> None:
    events: list[Event] = []
    store = Replaced(lambda store: None)
    store.current["a"] = b"torn"
    manager = CheckpointManager(store, LEASES, on_event=events.append)

    with pytest.raises(CorruptCheckpoint):
        manager.get_checkpoint("a")
    assert store.looks == 2
    assert [event.kind for event in events] == [EventKind.DAMAGE]
