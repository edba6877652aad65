"""Bad keys, on every operation: 8 keys, 13 operations, all refused before anything is touched. And odd ones."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from checkpointmanager import CheckpointManager, InvalidKey

from ..contents import names
from ..leases import OLD, Lease

BAD_KEYS: list[Any] = ["", "\ud800", "a" * 201, "/" * 67, None, 5, b"a", ["a"]]
# Other programs' ways out of a directory, and what a shell, an option parser or a reader of names could trip over.
ODD_KEYS = [
    "..",
    ".",
    "a/b",
    "/etc/passwd",
    "../../x",
    "a\0b",
    "%2e",
    "%2E%2E",
    ".lock",
    ".journal",
    ".previous-a",
    "-rf",
]
ODD_KEYS += ["a b", "é", "a\n", "\u0661", "a.", "_a", "a..b", "x.json", "~", "$(id)", "*", "\u202e"]

Manager = CheckpointManager[Lease]


def batch_create(manager: Manager, key: Any) -> None:
    with manager.batch() as batch:
        batch.create_checkpoint("good", OLD)
        batch.create_checkpoint(key, OLD)


def batch_remove(manager: Manager, key: Any) -> None:
    with manager.batch() as batch:
        batch.create_checkpoint("good", OLD)
        batch.remove_checkpoint(key)


OPERATIONS: dict[str, Callable[[Manager, Any], object]] = {
    "create": lambda manager, key: manager.create_checkpoint(key, OLD),
    "create without overwrite": lambda manager, key: manager.create_checkpoint(key, OLD, overwrite=False),
    "get": lambda manager, key: manager.get_checkpoint(key),
    "previous": lambda manager, key: manager.previous_checkpoint(key),
    "update": lambda manager, key: manager.update_checkpoint(key, lambda lease: lease),
    "remove": lambda manager, key: manager.remove_checkpoint(key),
    "in": lambda manager, key: key in manager,
    "not in": lambda manager, key: key not in manager,
    "recover": lambda manager, key: manager.recover_checkpoint(key),
    "roll back": lambda manager, key: manager.recover_checkpoint(key, rollback=True),
    "batch create": batch_create,
    "batch remove": batch_remove,
    "create of what cannot be stored": lambda manager, key: manager.create_checkpoint(key, object()),  # type: ignore[arg-type]
}


@pytest.mark.parametrize("operation", OPERATIONS)
def test_a_bad_key_is_refused(manager: Manager, directory: Path, operation: str) -> None:
    for key in BAD_KEYS:
        with pytest.raises(InvalidKey, match="not empty") as caught:
            OPERATIONS[operation](manager, key)

        assert isinstance(caught.value, ValueError)
        assert names(directory) == [".lock"]
        assert len(str(caught.value)) < 300


@pytest.mark.parametrize("key", ODD_KEYS, ids=ascii)
def test_any_other_text_is_a_key_and_stays_in_its_directory(tmp_path: Path, key: str) -> None:
    directory = tmp_path / "one" / "two" / "leases"
    with CheckpointManager(directory) as manager:
        manager.create_checkpoint(key, 1)
        manager.update_checkpoint(key, lambda number: number + 1)
        with manager.transaction() as transaction:
            transaction.update_checkpoint(key, lambda number: number + 1)
            transaction.create_checkpoint("other", 0)
        assert sorted(manager) == sorted([key, "other"])

    with CheckpointManager(directory) as manager:
        assert manager.get_checkpoint(key).data == 3
        assert manager.get_checkpoint(key).key == key
        assert manager.previous_checkpoint(key)
        manager.remove_checkpoint(key)
        assert list(manager) == ["other"]
    assert {path for path in tmp_path.rglob("*") if path.is_file()} == {directory / ".lock", directory / "other.json"}


def test_the_longest_key_has_room_for_everything(real_directory: Path) -> None:
    key = "k" * 200
    with CheckpointManager(real_directory) as manager:
        manager.create_checkpoint(key, 1)
        manager.create_checkpoint(key, 2)
        (real_directory / f"{key}.json").write_bytes(b"not a checkpoint")

        assert manager.recover_checkpoint(key, rollback=True).quarantined
        assert manager.get_checkpoint(key).data == 1
