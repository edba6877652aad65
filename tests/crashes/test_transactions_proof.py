"""Would the proof of transactions notice? Each of their safeguards is taken away, and a scenario has to fail."""

from __future__ import annotations

import errno
import gc
import itertools
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from checkpointmanager import CheckpointManager
from checkpointmanager._filestore import newfiles
from checkpointmanager._filestore.directory import Directory
from checkpointmanager._filestore.newfiles import FileFailed
from checkpointmanager._filestore.transactions import Transactions
from checkpointmanager._filestore.unfinished import Unfinished
from checkpointmanager._format.names import TRANSACTION
from checkpointmanager.testing import dying, every_crash, failing

from .ledger import Manager, folder_of
from .test_transactions import (
    create_and_remove,
    failing_in,
    put_and_remove,
    single_changes,
    then_the_opposite,
    three,
)
from .together import check, show

Patch = Callable[[], AbstractContextManager[Any]]
Act = Callable[[Manager], None]


def holds(act: Act, patch: Patch = nullcontext, *, also_restarting: bool = False) -> bool:
    def patched(manager: Manager) -> None:
        with patch():
            act(manager)

    def checked(crash: Any) -> None:
        with patch() if also_restarting else nullcontext():
            check(crash)

    try:
        every_crash(patched, setup=three).check(checked)
    except AssertionError:
        return False
    return True


def without_the_sync(of: str) -> Patch:
    """The directory is synced twice: for the commit, and in the end."""
    real = Transactions._sync

    def patch() -> AbstractContextManager[Any]:
        made: list[int] = []

        def sync(self: Transactions, error_before: OSError | None) -> None:
            made.append(1)
            if len(made) != {"commit": 1, "end": 2}[of]:
                real(self, error_before)

        return mock.patch.object(Transactions, "_sync", sync)

    return patch


def with_the_record_removed_before_the_sync() -> AbstractContextManager[Any]:
    real = Transactions._sync
    made: list[int] = []

    def sync(self: Transactions, error_before: OSError | None) -> None:
        made.append(1)
        if len(made) == 2:
            self._directory.discard(TRANSACTION)
        real(self, error_before)

    return mock.patch.object(Transactions, "_sync", sync)


def with_members_unsynced() -> AbstractContextManager[Any]:
    return mock.patch.object(newfiles, "sync")


def without_a_record() -> AbstractContextManager[Any]:
    real = Directory.rename

    def rename(self: Directory, old: str, new: str) -> None:
        if new != TRANSACTION:
            real(self, old, new)

    return mock.patch.object(Directory, "rename", rename)


def with_the_record_left_behind() -> AbstractContextManager[Any]:
    """Its slot is simply free for the next one."""
    real = Directory.discard
    return mock.patch.object(Directory, "discard", lambda self, name: name == TRANSACTION or real(self, name))


def without_blocking() -> AbstractContextManager[Any]:
    return mock.patch.object(Transactions, "settle")


def with_a_failure_reported_before_it_is_durable() -> AbstractContextManager[Any]:
    def take_back(self: Transactions, files: Any) -> bool:
        self._directory.unlink(TRANSACTION)
        self._last = None
        files.discard()
        return True

    return mock.patch.object(Transactions, "_take_back", take_back)


def with_every_record_believed() -> AbstractContextManager[Any]:
    return mock.patch.object(Unfinished, "_was_committed", return_value=True)


def with_readers_that_know_no_record() -> AbstractContextManager[Any]:
    return mock.patch.object(Unfinished, "_seen", return_value=None)


def with_recovery_that_knows_no_record() -> AbstractContextManager[Any]:
    return mock.patch.object(Transactions, "recover", return_value=0)


def fail_and_go_on(nth: int) -> Act:
    def act(manager: Manager) -> None:
        failing_in(create_and_remove, nth, lasting=False)(manager)
        single_changes(manager)

    return act


KNOWN_BAD: dict[str, tuple[Act, Patch, bool]] = {
    "the commit is not synced": (put_and_remove, without_the_sync("commit"), False),
    "the end is not synced": (put_and_remove, without_the_sync("end"), False),
    "record removed before the sync": (put_and_remove, with_the_record_removed_before_the_sync, False),
    "members unsynced": (put_and_remove, with_members_unsynced, False),
    "no record": (put_and_remove, without_a_record, False),
    "record left behind": (then_the_opposite, with_the_record_left_behind, False),
    "failure reported before it is durable": (
        fail_and_go_on(3),
        with_a_failure_reported_before_it_is_durable,
        False,
    ),
    "unfinished keys not blocked": (
        fail_and_go_on(4),
        without_blocking,
        False,
    ),
    "every record believed": (put_and_remove, with_every_record_believed, True),
    "readers know no record": (put_and_remove, with_readers_that_know_no_record, True),
    "recovery knows no record": (put_and_remove, with_recovery_that_knows_no_record, True),
}


@pytest.mark.parametrize("name", KNOWN_BAD)
def test_a_missing_safeguard_is_noticed(name: str) -> None:
    act, patch, also_restarting = KNOWN_BAD[name]
    assert not holds(act, patch, also_restarting=also_restarting)


# Recovery


def with_recovery_that_uses_the_old_record() -> AbstractContextManager[Any]:
    """As it otherwise does only where there is no room for another record."""
    full = FileFailed("", OSError(errno.ENOSPC, "no room"))
    return mock.patch.object(Transactions, "_write", side_effect=full)


def with_files_not_before_their_record() -> AbstractContextManager[Any]:
    """The first sync of recovery left out."""
    return without_the_sync("commit")()


def failed_and_killed(nth: int, patch: Patch, killed: list[bool]) -> Callable[[Path], None]:
    """The syncs of the commit fail, and then the process dies; another process finishes what it finds, and shows it."""

    def write(directory: Path) -> None:
        manager: CheckpointManager[Any] = CheckpointManager(folder_of(directory))
        create_and_remove(manager)
        manager.close()  # reached only if it was not killed

    def act(directory: Path) -> None:
        with failing(directory, "fsync", errno.EIO, nth=2, about="claims", lasting=True):
            with dying(directory, nth=nth) as injector:
                write(directory)
            killed.append(injector.dead)
            gc.collect()
        with patch():
            show(directory)

    return act


def closed(directory: Path) -> Path:
    three(directory).close()
    return directory


def holds_after_kills(patch: Patch) -> bool:
    for nth in itertools.count(20):
        killed: list[bool] = []
        crashes = every_crash(failed_and_killed(nth, patch, killed), setup=closed)
        if not killed[0]:
            break
        try:
            crashes.check(check)
        except AssertionError:
            return False
    assert nth > 40
    return True


def test_a_record_that_recovery_does_not_make_anew_is_noticed() -> None:
    assert holds_after_kills(nullcontext)
    assert not holds_after_kills(with_recovery_that_uses_the_old_record)


def test_recovery_whose_files_are_not_durable_before_their_record_is_noticed() -> None:
    def restart(directory: Path) -> None:
        with with_files_not_before_their_record():
            show(directory)

    with pytest.raises(AssertionError, match="which is none of"):
        every_crash(put_and_remove, setup=three).check(lambda crash: crash.again(restart).check(check))
