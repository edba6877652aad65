"""Every error at every system call of every change, and a Ctrl-C before or after it.

The error is truthful, nothing else is lost, nothing stays open or locked, and work goes on. The calls of a change are
not listed here but found: the first is made to fail, then the second, until one run gets through. After each failure a
copy of the directory shows what a kill at that moment would leave.
"""

from __future__ import annotations

import errno
import gc
import itertools
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import pytest

from checkpointmanager import (
    BatchFailed,
    CheckpointError,
    CheckpointManager,
    CheckpointUnreadable,
    CheckpointWriteFailed,
    DirectoryLocked,
    DirectoryUnusable,
)
from checkpointmanager.testing import Call, failing

from ...long import LONG, sample
from ..contents import names, quarantined
from ..leases import LEASES, NEW, OLD, LeaseManager
from ..processes import open_descriptors, open_journals
from ..scenarios import (
    BEFORE,
    CHANGES,
    CURES,
    MODES,
    PREPARATIONS,
    Change,
    as_after_a_kill,
    known,
    leave_as_killed,
    links_refused,
    values,
)

pytestmark = pytest.mark.usefixtures("kit_standing_by", "no_waiting_for_the_disk", "few_locks")

ERRORS = ["EIO", "ENOSPC", "EINTR", "ENOENT", *(["EROFS", "EMFILE", "EACCES", "EDQUOT"] if LONG else [])]
INTERRUPTS = ["Ctrl-C before", "Ctrl-C after"]
TROUBLES = [*ERRORS, *INTERRUPTS]
OWNERS = [*((each, "owner") for each in PREPARATIONS), ("found", "sharer"), ("found", "atomic")]


@pytest.fixture(autouse=True)
def nothing_to_collect() -> None:
    """What earlier tests left must not close its descriptors while these are counted."""
    gc.collect()


class Attempt(NamedTuple):
    """The outcome, and the call that failed (None: there were fewer calls)."""

    trouble: str
    outcome: Any  # a result, one of our errors, or KeyboardInterrupt
    failed: Call | None

    @property
    def number(self) -> int:
        return getattr(errno, self.trouble, 0)

    @property
    def is_an_answer(self) -> bool:
        """ENOENT of the checkpoint itself is no failure: it says that there is none, and is believed."""
        return self.trouble == "ENOENT" and self.failed is not None and self.failed.name in ("open", "stat", "unlink")

    @property
    def may_leave_a_descriptor(self) -> bool:
        """No Python program can close it if the interrupt comes when open returns, before a variable holds it."""
        return self.trouble == "Ctrl-C after" and self.failed is not None and self.failed.name == "open"


def attempt(directory: Path, trouble: str, nth: int, act: Callable[..., object], *arguments: Any) -> Attempt:
    """The n-th call fails. The outcome is a result, one of our errors or the interrupt; all else fails the test."""
    failure = KeyboardInterrupt() if trouble in INTERRUPTS else getattr(errno, trouble)
    with failing(directory, failure=failure, nth=nth, after=trouble == "Ctrl-C after") as injector:
        try:
            outcome = act(*arguments)
        except (CheckpointError, KeyboardInterrupt) as error:
            error.__traceback__ = None  # its frames would keep descriptors open
            outcome = error
    # A second sync of a file proves nothing. One of the directory does, after all its names were made anew.
    assert [call for call in injector.repeated_syncs if not call.concerns(".")] == []
    if trouble in INTERRUPTS:
        assert (outcome is failure) == bool(injector.failed), "nothing may swallow an interrupt"
    return Attempt(trouble, outcome, injector.failed)


@contextmanager
def describing(tried: Attempt) -> Iterator[None]:
    try:
        yield
    except BaseException as error:
        error.add_note(f"after a failed {tried.failed}, and {tried.outcome!r}")
        raise


def doubts(outcome: Any, change: Change) -> dict[str, bool]:
    """By key that failed: is it in doubt?"""
    if isinstance(outcome, BatchFailed):
        return {key: getattr(error, "in_doubt", False) for key, error in outcome.failures.items()}
    if isinstance(outcome, CheckpointError | KeyboardInterrupt):
        return dict.fromkeys(change.keys, getattr(outcome, "in_doubt", isinstance(outcome, KeyboardInterrupt)))
    return {}


def check_values(seen: dict[str, Any], change: Change, failed: dict[str, bool], *, doubtful: bool) -> None:
    """What failed for certain has not happened; what succeeded has; a doubt allows both, if `doubtful`."""
    happened: set[bool] = set()
    for key in {*BEFORE, *change.after}:
        before, after = BEFORE.get(key), change.after.get(key)
        if key not in failed:
            assert seen.get(key) == after, f"{key} is lost"
        elif failed[key] and doubtful:
            assert seen.get(key) in (before, after)
            happened.add(seen.get(key) == after)
        else:
            assert seen.get(key) == before, f"{key} has changed, and the error denies it"
    if change.together:
        assert len(happened) <= 1, "half of a transaction"


def check_error(outcome: CheckpointError, tried: Attempt, mode: str) -> None:
    assert tried.failed is not None
    if isinstance(outcome, DirectoryLocked | DirectoryUnusable):
        assert tried.failed.concerns(".lock") or mode == "sharer", "a sharer takes the lock anew for each change"
        return
    assert isinstance(outcome, CheckpointWriteFailed)
    assert outcome.errno == tried.number
    certain = ("nothing was changed", "none of the transaction's changes was made")
    assert outcome.in_doubt or isinstance(outcome, BatchFailed) or any(text in str(outcome) for text in certain)
    if mode == "owner" and outcome.in_doubt:
        assert tried.failed.name in ("lseek", "write", "fdatasync"), "only the append may leave a doubt"


@pytest.mark.parametrize(("trouble", "name", "owner"), sample(itertools.product(TROUBLES, CHANGES, OWNERS), 11))
def test_a_change_that_fails_at_any_call_says_the_truth_and_the_next_one_works(
    tmp_path: Path, trouble: str, name: str, owner: tuple[str, str]
) -> None:
    preparation, mode = owner
    for nth in itertools.count(1):
        directory = tmp_path / str(nth)
        descriptors = open_descriptors()
        with PREPARATIONS[preparation](directory, **MODES[mode]) as manager:
            of_the_manager = open_descriptors() - open_journals()
            tried = attempt(directory, trouble, nth, CHANGES[name].act, manager)
            with describing(tried):
                if not tried.may_leave_a_descriptor:
                    assert open_descriptors() - open_journals() == of_the_manager, "a descriptor is left open"
                    assert open_journals() <= 1
                check_change(directory, manager, tried, CHANGES[name], mode)
        if not tried.may_leave_a_descriptor:
            assert open_descriptors() == descriptors
        if not isinstance(tried.outcome, DirectoryLocked):
            with describing(tried), CheckpointManager(directory, LEASES) as manager:
                assert values(manager) == CHANGES[name].after
                assert names(directory, ".tmp-") == names(directory, ".j") == []
        if tried.failed is None:
            break
    assert nth > 3


def check_change(directory: Path, manager: LeaseManager, tried: Attempt, change: Change, mode: str) -> None:
    interrupted = tried.trouble in INTERRUPTS
    failed_call = tried.failed.name if tried.failed else ""
    swept_later = failed_call == "unlink" or (mode != "owner" if interrupted else failed_call == "rename")
    if not tried.is_an_answer:
        if isinstance(tried.outcome, CheckpointError):
            check_error(tried.outcome, tried, mode)
        failed = doubts(tried.outcome, change)
        check_values(values(manager), change, failed, doubtful=mode != "owner" or interrupted)
        check_values(as_after_a_kill(directory, directory.parent), change, failed, doubtful=True)
    if not swept_later and not interrupted:
        assert names(directory, ".tmp-") == []
    if mode == "sharer":
        CheckpointManager(directory, **MODES["sharer"]).close()  # the lock is free
    elif isinstance(tried.outcome, DirectoryLocked):
        return  # the lock file is gone: this owner never writes again
    change.act(manager)
    assert values(manager) == change.after
    if not swept_later:
        assert names(directory, ".tmp-") == []


@pytest.mark.parametrize(("trouble", "mode"), sample(itertools.product(ERRORS, MODES), 5))
def test_a_close_that_fails_at_any_call_loses_nothing_and_leaves_nothing_open(
    tmp_path: Path, mode: str, trouble: str
) -> None:
    for nth in itertools.count(1):
        directory = tmp_path / str(nth)
        descriptors = open_descriptors()
        manager = known(directory, **MODES[mode])
        tried = attempt(directory, trouble, nth, manager.close)
        with describing(tried):
            assert tried.outcome is None
            manager.close()
            assert (open_descriptors(), open_journals()) == (descriptors, 0)
            assert as_after_a_kill(directory, tmp_path) == BEFORE
        if tried.failed is None:
            break
    assert names(directory, ".") == [".lock", *(f".previous-{key}" for key in sorted(BEFORE))]


def killed_before_its_names(directory: Path) -> None:
    """A transaction is committed, and a power loss has taken all its names back."""
    leave_as_killed(directory, CHANGES["transaction"].act)
    (directory / ".tmp-dead").touch()
    (directory / "b.json").unlink()
    os.replace(directory / ".previous-a", directory / "a.json")
    os.link(directory / "other.json", directory / "c.json")  # torn: not what belongs there


@pytest.mark.parametrize(
    ("trouble", "mode", "new"), sample(itertools.product(TROUBLES, MODES, [False, True]), 5), ids=str
)
def test_an_open_that_fails_at_any_call_loses_nothing(tmp_path: Path, mode: str, trouble: str, new: bool) -> None:
    """Of a directory that a killed owner left, or of one that does not exist yet."""
    expected = {} if new else CHANGES["transaction"].after
    for nth in itertools.count(1):
        root = tmp_path / str(nth)
        directory = root / "agent" / "leases"
        root.mkdir(mode=0o700)
        if not new:
            directory.parent.mkdir(mode=0o700)
            killed_before_its_names(directory)
        before = open_descriptors(), open_journals()
        tried = attempt(root, trouble, nth, lambda: CheckpointManager(directory, LEASES, **MODES[mode]))  # noqa: B023
        with describing(tried):
            check_open(directory, tried, expected)
            # filelock forgets its descriptor before it gives the lock back.
            in_the_lock = trouble in INTERRUPTS and tried.failed and tried.failed.concerns(".lock")
            if not (tried.may_leave_a_descriptor or in_the_lock):
                assert (open_descriptors(), open_journals()) == before
        if tried.failed is None:
            break
    assert nth > 10


def check_open(directory: Path, tried: Attempt, expected: dict[str, Any]) -> None:
    if isinstance(tried.outcome, CheckpointManager):
        if not tried.is_an_answer:
            assert values(tried.outcome) == expected
            tried.outcome.create_checkpoint("a", OLD)
            expected = expected | {"a": OLD}
        tried.outcome.close()
    elif isinstance(tried.outcome, CheckpointError):
        assert isinstance(tried.outcome, DirectoryUnusable | DirectoryLocked)
        assert str(directory.parent) in str(tried.outcome)
        if directory.exists() and not tried.is_an_answer:
            assert as_after_a_kill(directory, directory.parent.parent) == expected
    if not tried.is_an_answer:
        with CheckpointManager(directory, LEASES) as manager:
            assert names(directory, ".tmp-") == []
            assert values(manager) == expected


@pytest.mark.parametrize(("trouble", "name"), sample(itertools.product(ERRORS, CURES), 5))
def test_a_cure_that_fails_at_any_call_leaves_the_damaged_bytes_or_the_good_ones(
    tmp_path: Path, name: str, trouble: str
) -> None:
    prepare, act, cured, outcome_of_success = CURES[name]
    for nth in itertools.count(1):
        directory = tmp_path / str(nth)
        with prepare(directory) as manager:
            descriptors = open_descriptors() - open_journals()
            damaged = (directory / "a.json").read_bytes()
            tried = attempt(directory, trouble, nth, act, manager)
            with describing(tried):
                assert open_descriptors() - open_journals() == descriptors
                if tried.is_an_answer:
                    continue  # there is nothing to cure
                if isinstance(tried.outcome, CheckpointError):
                    assert isinstance(tried.outcome, CheckpointWriteFailed | CheckpointUnreadable | DirectoryLocked)
                    assert (directory / "a.json").read_bytes() == damaged, "it stays until the change is certain"
                elif getattr(tried.outcome, "outcome", None) is outcome_of_success:
                    assert quarantined(directory) == [damaged], "kept before it is replaced"
                    assert manager.get_checkpoint("a").data == cured
        with describing(tried), CheckpointManager(directory, LEASES) as manager:
            act(manager)
            assert manager.get_checkpoint("a").data == cured
            assert quarantined(directory) == [damaged]
        if tried.failed is None:
            assert outcome_of_success in (None, getattr(tried.outcome, "outcome", None))
            break
    assert nth > 15


def outcome_of(change: Change, manager: LeaseManager) -> Any:
    try:
        return change.act(manager)
    except CheckpointWriteFailed as error:
        return error


@contextmanager
def full_disk(nth: int) -> Iterator[list[int]]:
    """The n-th write that needs room is the first that gets none. What has its room already can be written again."""
    write, needs, refused = os.write, itertools.count(1), list[int]()

    def refuse(descriptor: int, blob: bytes) -> int:
        if os.lseek(descriptor, 0, os.SEEK_CUR) + len(blob) > os.fstat(descriptor).st_size and next(needs) >= nth:
            refused.append(descriptor)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return write(descriptor, blob)

    with mock.patch.object(os, "write", refuse):
        yield refused


@pytest.mark.parametrize(("name", "preparation"), sample(itertools.product(CHANGES, PREPARATIONS), 5))
def test_when_the_disk_is_full_from_any_write_on_changes_fail_for_certain_and_close_and_open_work(
    tmp_path: Path, name: str, preparation: str
) -> None:
    change = CHANGES[name]
    for nth in itertools.count(1):
        directory = tmp_path / str(nth)
        manager = PREPARATIONS[preparation](directory)
        with full_disk(nth) as refused:
            failed = doubts(outcome_of(change, manager), change)
            check_values(values(manager), change, failed, doubtful=False)
            manager.close()
            with CheckpointManager(directory, LEASES) as manager:
                check_values(values(manager), change, failed, doubtful=True)
                manager.remove_checkpoint("other")
                assert "other" not in manager
        with CheckpointManager(directory, LEASES) as manager:
            assert "other" not in manager
            manager.create_checkpoint("other", OLD)
            change.act(manager)
            assert values(manager) == change.after
        if not refused:
            break
    assert nth > 1


@pytest.mark.parametrize("links", [True, False])
def test_short_writes_are_continued(real_directory: Path, links: bool) -> None:
    write = os.write
    world = mock.patch.object(
        os, "write", lambda descriptor, blob: write(descriptor, bytes(blob)[: len(blob) // 2 + 1])
    )

    with CheckpointManager(real_directory, LEASES) as manager, world:
        manager.create_checkpoint("a", OLD)
        with nullcontext() if links else links_refused(real_directory):
            manager.create_checkpoint("a", NEW)
        with manager.batch() as batch:
            batch.create_checkpoint("b", OLD)
            batch.create_checkpoint("c", OLD)

        assert manager.verify().intact == 3
        previous = manager.previous_checkpoint("a")
    assert previous is not None
    assert previous.data == OLD
