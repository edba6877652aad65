"""A folder has the name of a checkpoint. It stays until a checkpoint is ready to replace it."""

from __future__ import annotations

import errno
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from pyfakefs.fake_filesystem import FakeFilesystem

from checkpointmanager import (
    CheckpointError,
    CheckpointManager,
    CheckpointWriteFailed,
    CorruptCheckpoint,
    Event,
    EventKind,
    Outcome,
    Reason,
)
from checkpointmanager._filestore import folder
from checkpointmanager.testing import dying, failing

from ..contents import names

Manager = CheckpointManager[Any]


def not_exchanged() -> AbstractContextManager[Any]:
    return mock.patch.object(folder, "exchange", side_effect=OSError(errno.EINVAL, "Invalid argument"))


WAYS: dict[str, Callable[[], AbstractContextManager[Any]]] = {"exchanged": nullcontext, "in steps": not_exchanged}
ACTIONS: dict[str, tuple[Callable[[Manager], object], object]] = {
    "create": (lambda manager: manager.create_checkpoint("a", 3), 3),
    "rollback": (lambda manager: manager.recover_checkpoint("a", rollback=True), 1),
}
all_calls = pytest.mark.usefixtures("kit_standing_by")
by_way = pytest.mark.parametrize("way", WAYS)
by_action = pytest.mark.parametrize("action", ACTIONS)


def prepared(directory: Path, on_event: Callable[[Event], object] | None = None) -> Manager:
    with CheckpointManager[Any](directory) as manager:
        manager.create_checkpoint("a", 1)
        manager.create_checkpoint("a", 2)
    (directory / "a.json").unlink()
    (directory / "a.json").mkdir()
    (directory / "a.json" / "inside").write_bytes(b"foreign")
    return CheckpointManager(directory, on_event=on_event)


def is_damaged(manager: Manager) -> bool:
    try:
        manager.get_checkpoint("a")
    except CorruptCheckpoint as damage:
        return damage.reason is Reason.NOT_A_FILE
    return False


def kept(directory: Path) -> list[str]:
    return [str(path.relative_to(directory)) for path in directory.rglob("inside")]


@by_action
def test_a_full_disk_leaves_it_damaged_and_the_previous_generation_in_place(directory: Path, action: str) -> None:
    events: list[Event] = []
    act, value = ACTIONS[action]
    with prepared(directory, events.append) as manager:
        with (
            failing(directory, "write", errno.ENOSPC),
            pytest.raises(CheckpointWriteFailed, match="the old content is still in place"),
        ):
            act(manager)
        assert is_damaged(manager)
        assert kept(directory) == ["a.json/inside"]
        assert EventKind.QUARANTINED not in [event.kind for event in events]
    with CheckpointManager[Any](directory) as manager:
        assert is_damaged(manager)
        act(manager)
        assert manager.get_checkpoint("a").data == value


@by_way
@by_action
def test_it_is_in_quarantine_when_it_has_been_replaced(real_directory: Path, way: str, action: str) -> None:
    events: list[Event] = []
    act, value = ACTIONS[action]
    with prepared(real_directory, events.append) as manager:
        with WAYS[way]():
            recovery = act(manager)
        assert manager.get_checkpoint("a").data == value
        previous = manager.previous_checkpoint("a")
        assert previous is not None
        assert previous.data == 1

    (place,) = kept(real_directory)
    folder_name = str(real_directory / Path(place).parent)
    assert place.startswith(".quarantine/a.")
    (event,) = (event for event in events if event.kind is EventKind.QUARANTINED)
    assert folder_name in event.detail
    if action == "rollback":
        assert getattr(recovery, "quarantined", None) == folder_name
        assert getattr(recovery, "outcome", None) is Outcome.ROLLED_BACK
    assert names(real_directory, ".tmp-") == []


@all_calls
@by_way
@by_action
def test_whatever_call_fails_it_is_replaced_or_as_it_was(tmp_path: Path, way: str, action: str) -> None:
    act, value = ACTIONS[action]
    for nth in range(1, 100):
        directory = tmp_path / str(nth)
        with prepared(directory) as manager:
            failure: CheckpointError | None = None
            with WAYS[way](), failing(directory, failure=errno.EIO, nth=nth) as fault:
                try:
                    act(manager)
                except CheckpointError as error:
                    failure = error
            if isinstance(failure, CheckpointWriteFailed):
                assert is_damaged(manager) != failure.in_doubt
                assert failure.in_doubt or kept(directory) == ["a.json/inside"]
            assert is_damaged(manager) or manager.get_checkpoint("a").data == value
            assert len(kept(directory)) == 1
        with CheckpointManager[Any](directory) as manager:
            act(manager)
            assert manager.get_checkpoint("a").data == value
            assert len(kept(directory)) == 1
            assert names(directory, ".tmp-") == []
        if fault.failed is None:
            break
    assert nth > 15


@all_calls
@by_way
@by_action
def test_a_kill_at_any_call_leaves_damage_or_the_replacement_but_never_nothing(
    tmp_path: Path, way: str, action: str
) -> None:
    act, value = ACTIONS[action]
    for nth in range(1, 100):
        directory = tmp_path / str(nth)
        manager = prepared(directory)
        with WAYS[way](), dying(directory, nth=nth) as death:
            act(manager)
        manager.close()
        with CheckpointManager[Any](directory) as manager:
            if is_damaged(manager):
                assert kept(directory) == ["a.json/inside"]
                assert manager.recover_checkpoint("a", rollback=True).outcome is Outcome.ROLLED_BACK
            else:
                assert manager.get_checkpoint("a").data == value
            (place,) = kept(directory)
            assert place.startswith(".quarantine/a.")
            assert names(directory, ".tmp-") == []
        if death.failed is None:
            break
    assert nth > 15


def test_a_removal_moves_it_to_quarantine(directory: Path) -> None:
    with prepared(directory) as manager:
        manager.remove_checkpoint("a")
        assert "a" not in manager
        (place,) = kept(directory)
    assert place.startswith(".quarantine/a.")
    assert names(directory) == [".lock", ".quarantine"]


@all_calls
def test_a_kill_at_any_call_of_a_removal_loses_nothing_of_it(tmp_path: Path) -> None:
    for nth in range(1, 100):
        directory = tmp_path / str(nth)
        manager = prepared(directory)
        with dying(directory, nth=nth) as death:
            manager.remove_checkpoint("a")
        manager.close()
        with CheckpointManager[Any](directory) as manager:
            assert "a" not in manager or is_damaged(manager)
            assert len(kept(directory)) == 1
            assert names(directory, ".tmp-") == []
        if death.failed is None:
            break
    assert nth > 5


def test_one_that_appears_under_a_running_owner_is_moved_by_a_removal_too(real_directory: Path) -> None:
    with CheckpointManager[Any](real_directory) as manager:
        manager.create_checkpoint("a", 1)
        (real_directory / "a.json").unlink()
        (real_directory / "a.json").mkdir()
        (real_directory / "a.json" / "inside").write_bytes(b"foreign")

        manager.remove_checkpoint("a")

        assert "a" not in manager
        (place,) = kept(real_directory)
        assert place.startswith(".quarantine/a.")


def test_a_disk_that_is_really_full_leaves_it_as_it_is(directory: Path, fs: FakeFilesystem) -> None:
    with prepared(directory) as manager:
        _, used, _ = fs.get_disk_usage()
        fs.set_disk_usage(used + 10)
        with pytest.raises(CheckpointWriteFailed) as caught:
            manager.create_checkpoint("a", "x" * 1000)
        assert caught.value.errno == errno.ENOSPC
        assert is_damaged(manager)
