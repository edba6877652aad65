"""SIGKILL at any moment: what was acknowledged is stored, everything is whole, nothing unfinished is left."""

from __future__ import annotations

import itertools
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from checkpointmanager import CheckpointManager
from tests.long import sample, times

from ..contents import names
from ..leases import LEASES, Lease, LeaseManager
from ..processes import Child
from ..programs import die_before_call
from ..scenarios import BEFORE, CHANGES, MODES, PREPARATIONS, leave_as_killed, values

pytestmark = pytest.mark.usefixtures("uncounted", "kit_standing_by", "no_waiting_for_the_disk")

MOST_CALLS = 200  # at most, in one operation


def _close(manager: LeaseManager) -> None:
    manager.close()


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


ACTS: dict[str, tuple[Callable[[LeaseManager], object], dict[str, Lease]]] = {
    **{name: (change.act, change.after) for name, change in CHANGES.items()},
    "close": (_close, BEFORE),
}


@pytest.mark.parametrize(("name", "mode", "before"), sample(itertools.product(ACTS, MODES, ("known", "found")), 5))
def test_a_kill_before_any_system_call_leaves_old_or_new(tmp_path: Path, name: str, mode: str, before: str) -> None:
    act, after = ACTS[name]

    def work(directory: Path) -> Callable[[], object]:
        manager = PREPARATIONS[before](directory, **MODES[mode])
        return lambda: act(manager)

    seen: list[dict[str, Lease]] = []
    for directory in _kill_before_each_call(tmp_path, lambda _: None, work):
        with CheckpointManager(directory, LEASES, read_only=True) as reader:
            seen.append(values(reader))
        with CheckpointManager(directory, LEASES) as manager:
            assert not names(directory, ".tmp-")
            assert values(manager) == seen[-1], "a reader before saw something else"
            _goes_on(manager)
        with CheckpointManager(directory, LEASES) as manager:
            assert not names(directory, ".tmp-")
            assert {lease.holder for lease in values(manager).values()} == {"next"}

    assert (seen[0], seen[-1]) == (BEFORE, after)
    for key in BEFORE | after:
        old, new = BEFORE.get(key), after.get(key)
        states = [found.get(key) for found in seen]
        turn = states.index(new) if old != new else 0
        assert states == [old] * turn + [new] * (len(states) - turn), f"{key} was neither old nor new, or went back"
    if name == "transaction":
        assert all(found in (BEFORE, after) for found in seen), "half of a transaction"


def _goes_on(manager: LeaseManager) -> None:
    """The next owner can write everything, and a checkpoint that is created after a removal has no past."""
    for key in ("a", "b", "c", "other"):
        before = manager.get_checkpoint(key).generation if key in manager else 0
        assert manager.create_checkpoint(key, Lease("next")).generation > before
        previous = manager.previous_checkpoint(key)
        assert (previous.generation if previous else 0) == before


def test_a_kill_while_opening_is_no_harm(tmp_path: Path) -> None:
    def leave_traces(directory: Path) -> None:
        """A committed transaction whose names a power loss has taken back."""
        leave_as_killed(directory, CHANGES["transaction"].act)
        (directory / ".tmp-left").write_bytes(b"unfinished")
        (directory / "b.json").unlink()
        (directory / ".previous-a").rename(directory / "a.json")

    for directory in _kill_before_each_call(
        tmp_path, leave_traces, lambda path: lambda: CheckpointManager(path, LEASES)
    ):
        with CheckpointManager(directory, LEASES, lock_timeout=0) as manager:
            assert values(manager) == CHANGES["transaction"].after
            assert not names(directory, ".tmp-")


def test_a_kill_while_a_missing_directory_is_made_is_no_harm(tmp_path: Path) -> None:
    def work(directory: Path) -> Callable[[], object]:
        return lambda: CheckpointManager(directory / "deep" / "claims")

    kills = 0
    for kills, directory in enumerate(_kill_before_each_call(tmp_path, lambda _: None, work)):  # noqa: B007
        with CheckpointManager(directory / "deep" / "claims") as manager:
            assert manager.create_checkpoint("claim", 1).generation == 1
    assert kills > 3
