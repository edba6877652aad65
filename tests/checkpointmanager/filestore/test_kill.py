"""SIGKILL at any moment: what was acknowledged is stored, everything is whole, nothing unfinished is left."""

from __future__ import annotations

import itertools
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from checkpointmanager import CheckpointManager
from tests.long import sample, times

from ..leases import LEASES
from ..processes import Child
from ..programs import die_before_call
from ..scenarios import CHANGES as CHANGED
from ..scenarios import MODES, leave_as_killed

pytestmark = pytest.mark.usefixtures("uncounted", "kit_standing_by")

OLD, NEW = "old", "new"
MOST_CALLS = 200  # at most, in one operation

Manager = CheckpointManager[Any]


def _unfinished(directory: Path) -> list[str]:
    return [name for name in os.listdir(directory) if name.startswith(".tmp-")]


def _kill_before_each_call(
    tmp_path: Path, prepare: Callable[[Path], object], work: Callable[[Path], Callable[[], object]]
) -> Iterator[Path]:
    """A directory for each system call of the work, as a kill just before that call left it.

    `work` prepares the directory, and returns the action to kill. In the last directory the action ran undisturbed.
    """
    for number in range(1, MOST_CALLS, times(5, 1)):
        directory = tmp_path / str(number)
        prepare(directory)
        with Child(lambda _, n=number, d=directory: die_before_call(n, tmp_path, work(d))) as child:  # type: ignore[misc]
            ended = child.wait()
        assert ended in (0, -signal.SIGKILL)
        yield directory
        if ended == 0:
            return
    pytest.fail("the work never ended")


def _three_with_previous(directory: Path) -> None:
    with CheckpointManager(directory, durability="atomic") as manager:
        for key in ("a", "b", "c"):
            manager.create_checkpoint(key, "older")
            manager.create_checkpoint(key, OLD)


def _found(manager: CheckpointManager[Any]) -> dict[str, Any]:
    loaded = manager.load()
    assert not loaded.problems
    return {key: checkpoint.data for key, checkpoint in loaded.checkpoints.items()}


def _batch(manager: Manager) -> None:
    with manager.batch() as batch:
        for key in ("a", "b", "c"):
            batch.create_checkpoint(key, NEW)


def _transaction(manager: Manager) -> None:
    with manager.transaction() as transaction:
        transaction.create_checkpoint("a", NEW)
        transaction.create_checkpoint("new", NEW)
        transaction.remove_checkpoint("b")


BEFORE = {"a": OLD, "b": OLD, "c": OLD}
CHANGES: dict[str, tuple[Callable[[Manager], object], dict[str, str]]] = {
    "create": (lambda manager: manager.create_checkpoint("new", NEW), BEFORE | {"new": NEW}),
    "overwrite": (lambda manager: manager.create_checkpoint("a", NEW), BEFORE | {"a": NEW}),
    "update": (lambda manager: manager.update_checkpoint("a", lambda _: NEW), BEFORE | {"a": NEW}),
    "remove": (lambda manager: manager.remove_checkpoint("a"), {"b": OLD, "c": OLD}),
    "batch": (_batch, {"a": NEW, "b": NEW, "c": NEW}),
    "transaction": (_transaction, {"a": NEW, "c": OLD, "new": NEW}),
    "close": (lambda manager: manager.close(), BEFORE),
}


@pytest.mark.usefixtures("no_waiting_for_the_disk")
@pytest.mark.parametrize(("name", "mode", "ours"), sample(itertools.product(CHANGES, MODES, [False, True]), 5))
def test_a_kill_before_any_system_call_leaves_old_or_new(tmp_path: Path, name: str, mode: str, ours: bool) -> None:
    change, after = CHANGES[name]

    def work(directory: Path) -> Callable[[], object]:
        manager: Manager = CheckpointManager(directory, **MODES[mode])
        for key in BEFORE if ours else ():
            manager.create_checkpoint(key, "between")
            manager.create_checkpoint(key, OLD)
        return lambda: change(manager)

    seen: list[dict[str, Any]] = []
    for directory in _kill_before_each_call(tmp_path, _three_with_previous, work):
        seen.append(_found_by_all(directory))
        with CheckpointManager[Any](directory) as manager:
            assert not _unfinished(directory)
            assert _found(manager) == seen[-1], "a reader before saw something else"
            _goes_on(manager)
        with CheckpointManager[Any](directory) as manager:
            assert not _unfinished(directory)
            assert set(_found(manager).values()) == {"next"}

    assert (seen[0], seen[-1]) == (BEFORE, after)
    for key in BEFORE | after:
        old, new = BEFORE.get(key), after.get(key)
        states = [found.get(key) for found in seen]
        turn = states.index(new) if old != new else 0
        assert states == [old] * turn + [new] * (len(states) - turn), f"{key} was neither old nor new, or went back"
    if change is _transaction:
        assert all(found in (BEFORE, after) for found in seen), "half of a transaction"


def _found_by_all(directory: Path) -> dict[str, Any]:
    with CheckpointManager[Any](directory, read_only=True) as reader:
        return _found(reader)


def _goes_on(manager: Manager) -> None:
    """The next owner can write everything, and a checkpoint that is created after a removal has no past."""
    for key in ("a", "b", "c", "new"):
        before = manager.get_checkpoint(key).generation if key in manager else 0
        assert manager.create_checkpoint(key, "next").generation > before
        previous = manager.previous_checkpoint(key)
        assert (previous.generation if previous else 0) == before


@pytest.mark.usefixtures("no_waiting_for_the_disk")
def test_a_kill_amid_a_recovery_leaves_the_damaged_or_the_good_file(tmp_path: Path) -> None:
    damaged: dict[Path, bytes] = {}

    def damage(directory: Path) -> None:
        _three_with_previous(directory)
        damaged[directory] = (directory / "a.json").read_bytes()[:-20]
        (directory / "a.json").write_bytes(damaged[directory])

    def work(directory: Path) -> Callable[[], object]:
        manager = CheckpointManager(directory)
        return lambda: manager.recover_checkpoint("a", rollback=True)

    recovered: list[bool] = []
    for directory in _kill_before_each_call(tmp_path, damage, work):
        with CheckpointManager(directory) as manager:
            assert not _unfinished(directory)
            recovered.append("a" not in manager.load().problems)
            if not recovered[-1]:
                manager.recover_checkpoint("a", rollback=True)
            assert manager.get_checkpoint("a").data == "older"
        assert [kept.read_bytes() for kept in (directory / ".quarantine").iterdir()] == [damaged[directory]]
    assert len(recovered) > 5
    assert recovered == sorted(recovered)
    assert {*recovered} == {False, True}


@pytest.mark.usefixtures("no_waiting_for_the_disk")
def test_a_kill_while_opening_is_no_harm(tmp_path: Path) -> None:
    def leave_traces(directory: Path) -> None:
        """A committed transaction whose names a power loss has taken back."""
        leave_as_killed(directory, CHANGED["transaction"].act)
        (directory / ".tmp-left").write_bytes(b"unfinished")
        (directory / "b.json").unlink()
        (directory / ".previous-a").rename(directory / "a.json")

    for directory in _kill_before_each_call(
        tmp_path, leave_traces, lambda path: lambda: CheckpointManager(path, LEASES)
    ):
        with CheckpointManager(directory, LEASES, lock_timeout=0) as manager:
            assert _found(manager) == CHANGED["transaction"].after
            assert not _unfinished(directory)


@pytest.mark.usefixtures("no_waiting_for_the_disk")
def test_a_kill_while_a_missing_directory_is_made_is_no_harm(tmp_path: Path) -> None:
    def work(directory: Path) -> Callable[[], object]:
        return lambda: CheckpointManager(directory / "deep" / "claims")

    kills = 0
    for kills, directory in enumerate(_kill_before_each_call(tmp_path, lambda _: None, work)):  # noqa: B007
        with CheckpointManager(directory / "deep" / "claims") as manager:
            assert manager.create_checkpoint("claim", 1).generation == 1
    assert kills > 3
