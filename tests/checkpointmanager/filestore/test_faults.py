"""Every error at every system call of every change: the error is truthful, nothing else is lost, and work goes on.

The calls of a change are not listed here but found: the first is made to fail, then the second, until one run gets
through. After each failure a copy of the directory shows what a kill at that moment would leave.
"""

from __future__ import annotations

import errno
import itertools
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
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
from ..leases import LEASES, OLD, LeaseManager
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

pytestmark = pytest.mark.usefixtures("kit_standing_by", "no_waiting_for_the_disk")

ERRORS = [errno.EIO, errno.ENOSPC, errno.EINTR, errno.ENOENT]
ERRORS += [errno.EROFS, errno.EMFILE, errno.EACCES, errno.EDQUOT] if LONG else []


def shown(value: Any) -> str:
    return " ".join(value) if isinstance(value, tuple) else errno.errorcode.get(value, value)


by_errno = pytest.mark.parametrize("number", ERRORS, ids=shown)
by_errno_and_mode = pytest.mark.parametrize(("number", "mode"), sample(itertools.product(ERRORS, MODES), 5), ids=shown)


class Attempt(NamedTuple):
    """The outcome, and the call that failed (None: there were fewer calls)."""

    number: int  # the errno
    outcome: Any  # a result, or one of our errors
    failed: Call | None


def attempt(directory: Path, number: int, nth: int, act: Callable[..., object], *arguments: Any) -> Attempt:
    """The n-th call fails. The outcome is a result or one of our errors; anything else fails the test."""
    with failing(directory, failure=OSError(number, os.strerror(number)), nth=nth) as injector:
        try:
            outcome = act(*arguments)
        except CheckpointError as error:
            error.__traceback__ = None  # its frames would keep descriptors open
            outcome = error
    # A second sync of a file proves nothing. One of the directory does, after all its names were made anew.
    assert [call for call in injector.repeated_syncs if not call.concerns(".")] == []
    return Attempt(number, outcome, injector.failed)


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
    if isinstance(outcome, CheckpointError):
        return dict.fromkeys(change.keys, getattr(outcome, "in_doubt", False))
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


def is_an_answer(tried: Attempt) -> bool:
    """ENOENT of the checkpoint itself is no failure: it says that there is none, and is believed."""
    return tried.number == errno.ENOENT and tried.failed is not None and tried.failed.name in ("open", "stat", "unlink")


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


OWNERS = [*((each, "owner") for each in PREPARATIONS), ("found", "sharer"), ("found", "atomic")]


@pytest.mark.parametrize(("number", "name", "owner"), sample(itertools.product(ERRORS, CHANGES, OWNERS), 7), ids=shown)
def test_a_change_that_fails_at_any_call_says_the_truth_and_the_next_one_works(
    tmp_path: Path, number: int, name: str, owner: tuple[str, str]
) -> None:
    preparation, mode = owner
    for nth in itertools.count(1):
        directory = tmp_path / str(nth)
        descriptors = open_descriptors()
        with PREPARATIONS[preparation](directory, **MODES[mode]) as manager:
            of_the_manager = open_descriptors() - open_journals()
            tried = attempt(directory, number, nth, CHANGES[name].act, manager)
            with describing(tried):
                assert open_descriptors() - open_journals() == of_the_manager, "a descriptor is left open"
                assert open_journals() <= 1
                check_change(directory, manager, tried, CHANGES[name], mode)
        assert open_descriptors() == descriptors
        if not isinstance(tried.outcome, DirectoryLocked):
            with describing(tried), CheckpointManager(directory, LEASES) as manager:
                assert values(manager) == CHANGES[name].after
                assert names(directory, ".tmp-") == []
        if tried.failed is None:
            break
    assert nth > 3


def check_change(directory: Path, manager: LeaseManager, tried: Attempt, change: Change, mode: str) -> None:
    if not is_an_answer(tried):
        if isinstance(tried.outcome, CheckpointError):
            check_error(tried.outcome, tried, mode)
        failed = doubts(tried.outcome, change)
        check_values(values(manager), change, failed, doubtful=mode != "owner")
        check_values(as_after_a_kill(directory, directory.parent), change, failed, doubtful=True)
    if tried.failed is None or tried.failed.name not in ("unlink", "rename"):
        assert names(directory, ".tmp-") == []
    if isinstance(tried.outcome, DirectoryLocked) and mode != "sharer":
        return  # the lock file is gone: this owner never writes again
    change.act(manager)
    assert values(manager) == change.after


@by_errno_and_mode
def test_a_close_that_fails_at_any_call_loses_nothing_and_leaves_nothing_open(
    tmp_path: Path, mode: str, number: int
) -> None:
    for nth in itertools.count(1):
        directory = tmp_path / str(nth)
        descriptors = open_descriptors()
        manager = known(directory, **MODES[mode])
        tried = attempt(directory, number, nth, manager.close)
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
    (directory / "b.json").unlink()
    os.replace(directory / ".previous-a", directory / "a.json")
    os.link(directory / "other.json", directory / "c.json")  # torn: not what belongs there


@by_errno_and_mode
def test_an_open_after_a_kill_that_fails_at_any_call_loses_nothing(tmp_path: Path, mode: str, number: int) -> None:
    after = CHANGES["transaction"].after
    for nth in itertools.count(1):
        directory = tmp_path / str(nth)
        killed_before_its_names(directory)
        descriptors = open_descriptors()
        tried = attempt(directory, number, nth, lambda: CheckpointManager(directory, LEASES, **MODES[mode]))  # noqa: B023
        if is_an_answer(tried):
            if isinstance(tried.outcome, CheckpointManager):
                tried.outcome.close()
            continue
        with describing(tried):
            assert as_after_a_kill(directory, tmp_path) == after
            if isinstance(tried.outcome, CheckpointManager):
                assert values(tried.outcome) == after
                tried.outcome.create_checkpoint("a", OLD)
                tried.outcome.close()
            else:
                assert isinstance(tried.outcome, DirectoryUnusable | DirectoryLocked)
                assert str(directory) in str(tried.outcome)
            assert (open_descriptors(), open_journals()) == (descriptors, 0)
            with CheckpointManager(directory, LEASES) as manager:
                assert names(directory, ".tmp-") == []
                assert values(manager) == after | ({"a": OLD} if isinstance(tried.outcome, CheckpointManager) else {})
        if tried.failed is None:
            break
    assert nth > 20


@pytest.mark.parametrize(("number", "name"), sample(itertools.product(ERRORS, CURES), 5), ids=shown)
def test_a_cure_that_fails_at_any_call_leaves_the_damaged_bytes_or_the_good_ones(
    tmp_path: Path, name: str, number: int
) -> None:
    prepare, act, cured, outcome_of_success = CURES[name]
    for nth in itertools.count(1):
        directory = tmp_path / str(nth)
        with prepare(directory) as manager:
            descriptors = open_descriptors() - open_journals()
            damaged = (directory / "a.json").read_bytes()
            tried = attempt(directory, number, nth, act, manager)
            with describing(tried):
                assert open_descriptors() - open_journals() == descriptors
                if is_an_answer(tried):
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


def test_where_links_are_refused_the_previous_generation_is_a_copy_and_may_fail_without_harm(tmp_path: Path) -> None:
    for nth in itertools.count(1):
        directory = tmp_path / str(nth)
        with known(directory) as manager, links_refused(directory):
            tried = attempt(directory, errno.EIO, nth, CHANGES["update"].act, manager)
            failed = doubts(tried.outcome, CHANGES["update"])
            check_values(values(manager), CHANGES["update"], failed, doubtful=False)
            if not failed and not tried.failed:
                previous = manager.previous_checkpoint("a")
                assert previous is not None
                assert previous.data == OLD
        if tried.failed is None:
            break
    assert nth > 8


@by_errno
def test_a_read_that_fails_is_reported_and_forgotten(tmp_path: Path, number: int) -> None:
    """A single failure goes unnoticed: readers look twice. A lasting one is `unreadable`."""
    directory = tmp_path / "leases"
    with CheckpointManager(directory, LEASES) as manager:
        manager.create_checkpoint("a", OLD)
        for nth in itertools.count(1):
            tried = attempt(directory, number, nth, manager.get_checkpoint, "a")
            if tried.failed is None:
                break
            if not is_an_answer(tried):
                assert tried.outcome.data == OLD
        assert nth > 4
        for nth in range(1, 4):
            broken = failing(directory, failure=OSError(number, os.strerror(number)), nth=nth, lasting=True)
            if number != errno.ENOENT:
                with broken, pytest.raises(CheckpointUnreadable) as caught:
                    manager.get_checkpoint("a")
                assert caught.value.errno == number
        assert manager.get_checkpoint("a").data == OLD


@by_errno
def test_a_question_that_cannot_be_answered_is_an_error_and_not_a_no(tmp_path: Path, number: int) -> None:
    directory = tmp_path / "leases"
    with CheckpointManager(directory, LEASES) as manager:
        manager.create_checkpoint("a", OLD)
        questions: list[Callable[[LeaseManager], object]] = [lambda m: "a" in m, lambda m: m.list_checkpoints(), len]
        for question in questions:
            outcome = attempt(directory, number, 1, question, manager).outcome
            if question is questions[0] and number == errno.ENOENT:
                assert outcome is False
            else:
                assert isinstance(outcome, DirectoryUnusable)
                assert outcome.errno == number
