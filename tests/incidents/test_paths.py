"""Names from outside that became paths."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from checkpointmanager import CheckpointManager, CheckpointNotFound, CheckpointWriteFailed, InvalidKey

Manager = CheckpointManager[Any]

OPERATIONS: dict[str, Callable[[Manager, str], object]] = {
    "create": lambda manager, key: manager.create_checkpoint(key, "mine"),
    "create, not overwriting": lambda manager, key: manager.create_checkpoint(key, "mine", overwrite=False),
    "get": lambda manager, key: manager.get_checkpoint(key),
    "previous": lambda manager, key: manager.previous_checkpoint(key),
    "update": lambda manager, key: manager.update_checkpoint(key, lambda data: data),
    "remove": lambda manager, key: manager.remove_checkpoint(key),
    "recover": lambda manager, key: manager.recover_checkpoint(key, rollback=True),
    "in": lambda manager, key: key in manager,
    "batch create": lambda manager, key: manager.batch().create_checkpoint(key, "mine"),
    "batch remove": lambda manager, key: manager.batch().remove_checkpoint(key),
}
KEYS = ["../secret", "..", "/var/lib/secret", "a/../../secret", "..\\secret", ".lock", "secret\0", "", "x" * 201, "a\n"]


@pytest.mark.parametrize("operate", OPERATIONS.values(), ids=OPERATIONS)
def test_moby_53377_no_key_leaves_the_directory_on_any_operation(
    directory: Path, operate: Callable[[Manager, str], object]
) -> None:
    """A checkpoint's id was joined to a path; with ".." in it, reading and deleting reached any directory."""
    with CheckpointManager(directory.parent) as other:
        other.create_checkpoint("secret", "theirs")
    secret = directory.parent / "secret.json"
    blob = secret.read_bytes()
    assert Path(os.path.join(directory, "../secret.json")).resolve() == secret.resolve(), "the way that failed"

    with CheckpointManager(directory) as manager:
        for key in KEYS:
            with suppress(InvalidKey, CheckpointNotFound):
                operate(manager, key)
        assert all(name == os.path.basename(name) for name in os.listdir(directory))

    assert secret.read_bytes() == blob
    assert sorted(os.listdir(directory.parent)) == [".lock", "secret.json", "state"]


def test_moby_53377_a_link_under_a_good_name_is_not_followed_either(directory: Path) -> None:
    """Not in the thread but next door to it: a link with a good name leads out as well."""
    secret = directory.parent / "secret.json"
    with CheckpointManager(directory.parent) as other:
        other.create_checkpoint("secret", "theirs")
    blob = secret.read_bytes()

    with CheckpointManager(directory) as manager:
        (directory / "secret.json").symlink_to(secret)
        assert "secret" in manager.load().problems
        for change in (
            lambda: manager.create_checkpoint("secret", "mine"),
            lambda: manager.remove_checkpoint("secret"),
        ):
            with pytest.raises(CheckpointWriteFailed, match="move it away"):
                change()
        assert (directory / "secret.json").is_symlink()

    assert secret.read_bytes() == blob
