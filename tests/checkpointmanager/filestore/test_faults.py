"""Every error at every system call of every write: old or new content, no temp file, correct memory, the right error.

The calls of a scenario are not listed here but found: the first is made to fail, then the second, until one run
gets through. 15 scenarios, 7 errors, all calls: test_the_enumeration_is_as_large_as_it_claims counts them.
"""

from __future__ import annotations

import errno
import itertools
import os
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from checkpointmanager import (
    BatchFailed,
    Checkpoint,
    CheckpointError,
    CheckpointManager,
    CheckpointNotFound,
    CheckpointWriteFailed,
    CorruptCheckpoint,
    DirectoryLocked,
    DirectoryUnusable,
)
from checkpointmanager.testing import Call, failing, watching

from ..contents import names, quarantined
from ..leases import LEASES, NEW, OLD, LeaseManager
from ..processes import open_descriptors
from ..scenarios import CURES, WRITES, Scenario, data_of

pytestmark = pytest.mark.usefixtures("way", "kit_standing_by", "no_waiting_for_the_disk")

ERRORS = [errno.ENOSPC, errno.EIO, errno.EROFS, errno.EDQUOT, errno.EMFILE, errno.EACCES, errno.ENOENT]
by_errno = pytest.mark.parametrize("number", ERRORS, ids=lambda number: errno.errorcode[number])


class Attempt(NamedTuple):
    """The outcome, the call that failed (None: there were fewer calls) and all calls that were made."""

    nth: int
    outcome: Any  # a result, or one of our errors
    failed: Call | None
    failure: OSError
    calls: list[Call]


def attempt(directory: Path, number: int, nth: int, act: Any, *arguments: Any, lasting: bool = False) -> Attempt:
    """The n-th call fails. The outcome is a result or one of our errors; anything else fails the test."""
    failure = OSError(number, os.strerror(number))
    with failing(directory, failure=failure, nth=nth, lasting=lasting) as injector:
        try:
            outcome = act(*arguments)
        except CheckpointError as error:
            error.__traceback__ = None  # its frames would keep descriptors open
            outcome = error
    assert lasting or injector.repeated_syncs == []
    return Attempt(nth, outcome, injector.failed, failure, injector.calls)


def is_an_answer(tried: Attempt) -> bool:
    """ENOENT of the checkpoint itself is no failure: it says that there is none, and is believed."""
    call = tried.failed
    return (
        tried.failure.errno == errno.ENOENT
        and call is not None
        and call.name in ("open", "rename", "link")
        and call.about.startswith("a.json")
    )


def check_write(directory: Path, number: int, nth: int, scenario: Scenario) -> Attempt:
    descriptors = open_descriptors()
    with scenario.prepare(directory) as manager:
        manager_descriptors = open_descriptors()
        with scenario.world(directory):
            tried = attempt(directory, number, nth, scenario.act, manager)
        outcome = tried.outcome
        assert open_descriptors() == manager_descriptors, "a descriptor is left open"
        now = data_of(manager)
        if is_an_answer(tried):
            assert outcome is None or isinstance(outcome, CheckpointNotFound | Checkpoint)
        elif isinstance(outcome, CheckpointError):
            check_error(outcome, tried)
        else:
            assert now == scenario.after
        if failed := failure_of_a(outcome):
            assert now == ((failed.in_doubt and scenario.after) or scenario.before), "a removal in doubt is taken back"
        assert now in (scenario.before, scenario.after)
        if tried.failed is None or tried.failed.name != "unlink":
            assert names(directory, ".tmp-") == []
        check_memory(manager, tried, scenario)
    assert open_descriptors() == descriptors
    check_reopened(directory, scenario)
    return tried


def failure_of_a(error: Any) -> CheckpointWriteFailed | None:
    failure = error.failures.get("a") if isinstance(error, BatchFailed) else error
    return failure if isinstance(failure, CheckpointWriteFailed) else None


def check_error(error: CheckpointError, tried: Attempt) -> None:
    assert tried.failed is not None
    if tried.failed.about == ".lock" and tried.failure.errno == errno.ENOENT:
        assert isinstance(error, DirectoryLocked), "the lock file is gone"
        return
    assert isinstance(error, CheckpointWriteFailed)
    assert isinstance(error, OSError)
    assert error.errno == tried.failure.errno
    assert error.in_doubt == is_the_last_sync(tried)
    assert error.__cause__ is tried.failure or isinstance(error, BatchFailed)


def is_the_last_sync(tried: Attempt) -> bool:
    """The sync of the directory, after a name that matters has changed."""
    assert tried.failed is not None
    earlier = tried.calls[: tried.nth - 1]
    changed = any(call.name in ("rename", "exchange") and ".json" in call.about for call in earlier)
    return tried.failed.name == "fsync" and changed


def check_memory(manager: LeaseManager, tried: Attempt, scenario: Scenario) -> None:
    outcome = tried.outcome
    if is_an_answer(tried):
        manager.create_checkpoint("a", NEW)
        return
    if isinstance(outcome, DirectoryLocked):
        with pytest.raises(DirectoryLocked):
            manager.create_checkpoint("a", NEW)
        return
    seen = manager.get_checkpoint("a").generation if "a" in manager else 0
    again = manager.create_checkpoint("a", scenario.after or NEW)
    wrote = not isinstance(outcome, CheckpointError) and scenario.after is not None
    if wrote or (isinstance(outcome, BatchFailed) and "a" not in outcome.failures):
        assert again.unchanged
    else:
        assert not again.unchanged
        assert again.generation > seen
    assert manager.get_checkpoint("a").data == (scenario.after or NEW)


def check_reopened(directory: Path, scenario: Scenario) -> None:
    with CheckpointManager(directory, LEASES) as manager:
        assert names(directory, ".tmp-") == []
        assert manager.verify().problems == {}
        assert data_of(manager) in (scenario.before, scenario.after, NEW)
        manager.create_checkpoint("a", NEW)


@by_errno
@pytest.mark.parametrize("name", WRITES)
def test_a_write_that_fails_at_any_call_is_all_or_nothing(tmp_path: Path, name: str, number: int) -> None:
    for nth in itertools.count(1):
        if check_write(tmp_path / str(nth), number, nth, WRITES[name]).failed is None:
            break
    assert nth > 4


@by_errno
@pytest.mark.parametrize("name", CURES)
def test_a_cure_that_fails_at_any_call_leaves_the_damaged_bytes_or_the_good_ones(
    tmp_path: Path, name: str, number: int
) -> None:
    prepare, act, cured, outcome_of_success = CURES[name]
    for nth in itertools.count(1):
        directory = tmp_path / str(nth)
        with prepare(directory) as manager:
            descriptors = open_descriptors()
            damaged = (directory / "a.json").read_bytes()
            tried = attempt(directory, number, nth, act, manager)
            outcome = tried.outcome
            assert open_descriptors() == descriptors
            bytes_now = (directory / "a.json").read_bytes()
            if is_an_answer(tried):
                continue
            if isinstance(outcome, CorruptCheckpoint):
                assert outcome.errno == number == errno.EMFILE, "a shortage is no reason to give up the bytes"
            elif isinstance(outcome, CheckpointError) and tried.failed and tried.failed.about != ".lock":
                assert isinstance(outcome, CheckpointWriteFailed)
                assert outcome.errno == number
                assert (bytes_now != damaged) == outcome.in_doubt
            if bytes_now != damaged:
                assert quarantined(directory) == [damaged], "kept before it was replaced"
                assert manager.get_checkpoint("a").data == cured
            if tried.failed is None or tried.failed.name != "unlink":
                assert names(directory, ".tmp-") == []
        with CheckpointManager(directory, LEASES) as manager:
            act(manager)
            assert manager.get_checkpoint("a").data == cured
            assert damaged in quarantined(directory)
            assert len(quarantined(directory)) == 1
        if tried.failed is None:
            assert outcome_of_success in (None, outcome.outcome if outcome_of_success else None)
            break
    assert nth > 15


def leftovers(directory: Path) -> None:
    with CheckpointManager(directory, LEASES) as manager:
        manager.create_checkpoint("a", OLD)
    (directory / ".tmp-dead").write_bytes(b"unfinished")
    (directory / ".previous-gone").write_bytes(b"orphan")


def is_forgiven_at_opening(number: int, tried: Attempt) -> bool:
    """A parent that may not be read or is read-only cannot be synced either; a new lock file is missing.

    No other sync and no read is skipped.
    """
    call = tried.failed
    assert call is not None
    if call.name == "fsync" and number == errno.EROFS:
        return any(later.name == "fsync" for later in tried.calls[tried.nth :])  # the last sync is the directory's own
    if call.name in ("open", "fchmod"):
        return number == errno.EACCES
    if call.name == "stat" and call.about.endswith(".lock"):
        return number == errno.ENOENT
    return call.name not in ("fsync", "fstat", "listdir")


@by_errno
@pytest.mark.parametrize("new", [True, False], ids=["a new directory", "one with leftovers"])
def test_an_open_that_fails_at_any_call_can_be_repeated(tmp_path: Path, number: int, new: bool) -> None:
    for nth in itertools.count(1):
        root = tmp_path / str(nth)
        directory = root / "lib" / "agent" / "leases"
        root.mkdir()
        if not new:
            leftovers(directory)
        descriptors = open_descriptors()
        tried = attempt(root, number, nth, CheckpointManager, directory, LEASES)
        outcome, failed = tried.outcome, tried.failed
        if isinstance(outcome, CheckpointManager):
            assert failed is None or is_forgiven_at_opening(number, tried)
            outcome.close()
        elif failed and failed.about.endswith(".lock") and number in (errno.ENOENT, errno.EACCES):
            assert isinstance(outcome, DirectoryLocked | DirectoryUnusable)  # filelock mistakes it for contention
        else:
            assert isinstance(outcome, DirectoryUnusable)
            assert number in (outcome.errno, errno.ENOENT)  # filelock then tries to make the directory
            assert outcome.__cause__ is tried.failure or number == errno.ENOENT
        assert open_descriptors() == descriptors, "a descriptor is left open"

        with CheckpointManager(directory, LEASES) as manager:
            assert names(directory) == [".lock"] if new else [".lock", "a.json"]
            assert manager.verify().problems == {}
            manager.create_checkpoint("a", NEW)
        if failed is None:
            break
    assert nth > 10


@by_errno
def test_a_write_under_sharing_that_fails_at_any_call_gives_the_lock_back(tmp_path: Path, number: int) -> None:
    for nth in itertools.count(1):
        directory = tmp_path / str(nth)
        with CheckpointManager(directory, LEASES, sharing=True, lock_timeout=0) as manager:
            manager.create_checkpoint("a", OLD)
            descriptors = open_descriptors()
            tried = attempt(directory, number, nth, manager.create_checkpoint, "a", NEW)
            assert open_descriptors() == descriptors
            with CheckpointManager(directory, LEASES, sharing=True, lock_timeout=0) as other:
                assert data_of(other) in (OLD, NEW)
                other.create_checkpoint("b", NEW)
            manager.create_checkpoint("a", NEW)
            assert names(directory, ".tmp-") == []
        if tried.failed is None:
            break
    assert nth > 15


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
            outcome = attempt(directory, number, nth, manager.get_checkpoint, "a", lasting=True).outcome
            if number != errno.ENOENT:
                assert isinstance(outcome, CorruptCheckpoint)
                assert (outcome.reason, outcome.errno) == ("unreadable", number)
        assert manager.get_checkpoint("a").data == OLD


@by_errno
def test_a_question_that_cannot_be_answered_is_an_error_and_not_a_no(tmp_path: Path, number: int) -> None:
    directory = tmp_path / "leases"
    with CheckpointManager(directory, LEASES) as manager:
        manager.create_checkpoint("a", OLD)
        for question in (manager.__contains__, lambda _: manager.list_checkpoints(), lambda _: len(manager)):
            outcome = attempt(directory, number, 1, question, "a").outcome
            if question == manager.__contains__ and number == errno.ENOENT:
                assert outcome is False
            else:
                assert isinstance(outcome, DirectoryUnusable)
                assert outcome.errno == number


def test_the_enumeration_is_as_large_as_it_claims(tmp_path: Path) -> None:
    """Each scenario's calls, times seven errors. The number is here only so that a drop is noticed."""
    made = 0
    for number, scenario in enumerate(WRITES.values()):
        directory = tmp_path / str(number)
        with scenario.prepare(directory) as manager, scenario.world(directory), watching(directory) as calls:
            scenario.act(manager)
        made += len(calls)
    for number, (prepare, act, _, _) in enumerate(CURES.values(), 100):
        directory = tmp_path / str(number)
        with prepare(directory) as manager, watching(directory) as calls:
            act(manager)
        made += len(calls)
    assert made * len(ERRORS) >= 1000
