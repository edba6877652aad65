"""The verbs of a manager: create, get, remove, list; how it counts generations, and when it need not write."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from checkpointmanager import (
    CheckpointExists,
    CheckpointManager,
    CheckpointNotFound,
    CheckpointTooNew,
    CorruptCheckpoint,
    MemoryStore,
    Reason,
    Schema,
    UnstorableValue,
    WrongKind,
)
from checkpointmanager.testing import damage

from ..contents import names, quarantined
from ..leases import BOOT, LEASES, NEW, OLD, Lease, LeaseManager


def test_what_was_created_is_got(manager: LeaseManager) -> None:
    created = manager.create_checkpoint("pod-7", OLD)
    got = manager.get_checkpoint("pod-7")

    assert got == created
    assert got.data == OLD
    assert (got.key, got.generation, got.version, got.boot, got.unchanged) == ("pod-7", 1, 1, BOOT, False)
    assert timedelta() <= datetime.now(UTC) - got.written < timedelta(minutes=1)


def test_a_closed_directory_has_one_file_per_checkpoint(real_directory: Path) -> None:
    with CheckpointManager(real_directory, LEASES) as manager:
        manager.create_checkpoint("a", OLD)
        manager.create_checkpoint("b", OLD)
        assert names(real_directory) == [".journal", ".lock", "a.json", "b.json"]

    assert names(real_directory) == [".lock", "a.json", "b.json"]
    assert (real_directory / "a.json").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("damaged", [False, True])
def test_create_without_overwrite_refuses_an_existing_checkpoint(
    manager: LeaseManager, directory: Path, damaged: bool
) -> None:
    manager.create_checkpoint("a", OLD, overwrite=False)
    if damaged:
        (directory / "a.json").write_bytes(b"")
    before = (directory / "a.json").read_bytes()

    with pytest.raises(CheckpointExists, match=str(directory / "a.json")):
        manager.create_checkpoint("a", NEW, overwrite=False)

    assert (directory / "a.json").read_bytes() == before
    assert quarantined(directory) == []


def test_create_without_overwrite_writes_what_was_deleted_by_hand(manager: LeaseManager, directory: Path) -> None:
    manager.create_checkpoint("a", OLD)
    (directory / "a.json").unlink()

    assert not manager.create_checkpoint("a", OLD, overwrite=False).unchanged
    assert manager.get_checkpoint("a").data == OLD


def test_get_of_a_missing_key_is_also_a_key_error(manager: LeaseManager) -> None:
    with pytest.raises(CheckpointNotFound) as caught:
        manager.get_checkpoint("a")

    assert isinstance(caught.value, KeyError)
    assert caught.value.key == "a"
    assert caught.value.path in str(caught.value)


def test_removed_is_gone_and_may_be_removed_again(manager: LeaseManager, directory: Path) -> None:
    manager.create_checkpoint("a", OLD)
    manager.create_checkpoint("a", NEW)

    manager.remove_checkpoint("a")
    manager.remove_checkpoint("a")

    with pytest.raises(CheckpointNotFound):
        manager.get_checkpoint("a")
    manager.close()
    assert names(directory) == [".lock"]


def test_keys_are_listed_sorted_also_the_damaged_ones(manager: LeaseManager, directory: Path) -> None:
    for key in ("b", "a", "c.d", "B"):
        manager.create_checkpoint(key, OLD)
    (directory / "zero.json").write_bytes(b"")
    (directory / "no checkpoint.json").write_bytes(b"")
    (directory / "notes.txt").write_bytes(b"")

    assert manager.list_checkpoints() == list(manager) == ["B", "a", "b", "c.d", "zero"]
    assert len(manager) == 5
    assert "a" in manager
    assert "zero" in manager
    assert "notes" not in manager


def test_an_empty_manager_is_empty_and_true(manager: LeaseManager) -> None:
    assert (list(manager), len(manager), "a" in manager, bool(manager)) == ([], 0, False, True)


def test_generations_count_on_after_a_restart(directory: Path) -> None:
    for generation in (1, 2, 3):
        with CheckpointManager(directory, LEASES) as manager:
            assert manager.create_checkpoint("a", Lease("a", generation)).generation == generation
            assert manager.get_checkpoint("a").generation == generation


def test_generations_start_again_when_the_owner_of_a_removed_key_has_closed(directory: Path) -> None:
    with CheckpointManager(directory, LEASES) as manager:
        manager.create_checkpoint("a", OLD)
        manager.remove_checkpoint("a")
    with CheckpointManager(directory, LEASES) as manager:
        assert manager.create_checkpoint("a", OLD).generation == 1


def test_the_same_value_is_not_written_again(manager: LeaseManager, directory: Path) -> None:
    first = manager.create_checkpoint("a", OLD)
    inode = os.stat(directory / "a.json").st_ino

    again = manager.create_checkpoint("a", Lease("old"))

    assert again.unchanged
    assert (again.generation, again.written) == (first.generation, first.written)
    assert os.stat(directory / "a.json").st_ino == inode


def test_another_version_of_the_same_value_is_written() -> None:
    store = MemoryStore()
    CheckpointManager(store, Schema("Lease", 2, readable_by=1, type=Lease)).create_checkpoint("a", OLD)
    manager = CheckpointManager(store, LEASES)
    assert manager.update_checkpoint("a", lambda _: NEW).version == 2, "an update keeps it"

    created = manager.create_checkpoint("a", NEW)

    assert (created.unchanged, created.version) == (False, 1)


def test_the_same_value_is_written_again_after_a_restart(directory: Path) -> None:
    for _ in range(2):
        with CheckpointManager(directory, LEASES) as manager:
            assert not manager.create_checkpoint("a", OLD).unchanged


LOOKS: dict[str, Callable[[LeaseManager], object]] = {
    "get": lambda manager: manager.get_checkpoint("a", None),
    "update": lambda manager: manager.update_checkpoint("a", lambda lease: lease),
    "in": lambda manager: "a" in manager,
    "verify": lambda manager: manager.verify(),
    "load": lambda manager: manager.load(),
    "recover": lambda manager: manager.recover_checkpoint("a"),
}


@pytest.mark.parametrize("look", LOOKS)
@pytest.mark.parametrize("missing", [False, True], ids=["damaged", "missing"])
def test_what_was_seen_missing_or_damaged_is_not_taken_for_unchanged(
    manager: LeaseManager, directory: Path, look: str, missing: bool
) -> None:
    manager.create_checkpoint("a", OLD)
    (directory / "a.json").unlink() if missing else damage.ruin(directory, "a")
    with suppress(CheckpointNotFound, CorruptCheckpoint):
        LOOKS[look](manager)

    assert not manager.create_checkpoint("a", OLD).unchanged
    assert manager.get_checkpoint("a").data == OLD


def test_a_value_over_the_limit_is_refused_and_the_old_one_stays(directory: Path) -> None:
    with CheckpointManager(directory, LEASES, max_bytes=400) as manager:
        manager.create_checkpoint("a", OLD)
        with pytest.raises(UnstorableValue, match="over the limit of 400"):
            manager.create_checkpoint("a", Lease("x" * 400))

        assert manager.get_checkpoint("a").data == OLD
        assert not manager.create_checkpoint("a", OLD).unchanged, "a failed write leaves nothing to rely on"


def test_a_value_of_exactly_the_limit_is_stored() -> None:
    store = MemoryStore()
    CheckpointManager(store).create_checkpoint("a", "x" * 100)
    size = len(store.current["a"])

    store.max_bytes = size
    CheckpointManager(store).create_checkpoint("a", "y" * 100)
    with pytest.raises(UnstorableValue, match=f"takes {size + 1} bytes, over the limit of {size}"):
        CheckpointManager(store).create_checkpoint("a", "y" * 101)


def test_a_file_over_the_limit_is_not_read(directory: Path) -> None:
    with CheckpointManager(directory, LEASES) as manager:
        manager.create_checkpoint("a", Lease("x" * 1000))

    with CheckpointManager(directory, LEASES, max_bytes=999) as manager:
        with pytest.raises(CorruptCheckpoint, match="max_bytes") as caught:
            manager.get_checkpoint("a")
        assert caught.value.reason is Reason.TOO_LARGE


@pytest.mark.parametrize(
    ("theirs", "error", "text"),
    [
        (Schema("Claim", type=Lease), WrongKind, "'Claim' where 'Lease'"),
        (Schema("Lease", version=2, type=Lease), CheckpointTooNew, "written by a newer program"),
    ],
)
def test_what_another_program_wrote_is_neither_read_nor_overwritten_but_may_be_removed(
    directory: Path, theirs: Schema[Lease], error: type[Exception], text: str
) -> None:
    with CheckpointManager(directory, theirs) as manager:
        manager.create_checkpoint("a", OLD)
    before = (directory / "a.json").read_bytes()

    with CheckpointManager(directory, LEASES) as manager:
        for refused in (
            lambda: manager.get_checkpoint("a"),
            lambda: manager.get_checkpoint("a", None),
            lambda: manager.create_checkpoint("a", NEW),
            lambda: manager.update_checkpoint("a", lambda lease: lease),
            lambda: manager.recover_checkpoint("a", rollback=True),
            lambda: manager.plan_recovery("a"),
        ):
            with pytest.raises(error, match=text):
                refused()
        assert (directory / "a.json").read_bytes() == before
        manager.remove_checkpoint("a")
        assert "a" not in manager
        assert quarantined(directory) == []
