"""A transaction of a put, a create and a removal: every error, kill, interrupt and signal at every place in it.

Afterwards either all of it happened or nothing, the error says which, and the directory is usable. The power losses are
in tests/crashes.
"""

from __future__ import annotations

import errno
import itertools
from collections.abc import Callable
from pathlib import Path

import pytest

from checkpointmanager import (
    CheckpointWriteFailed,
    DirectoryLocked,
    DirectoryUnusable,
    TransactionFailed,
)
from checkpointmanager.testing import failing

from ...long import LONG
from ..leases import OLD, Lease
from ..processes import open_descriptors
from ..signals import everywhere, in_time
from ..three_keys import (
    AFTER,
    BEFORE,
    as_a_reader_sees_it,
    check_reopened,
    check_that_it_goes_on,
    filled,
    transact,
    values,
)
from .test_interrupts import Moment, interrupted, killed

pytestmark = pytest.mark.usefixtures("kit_standing_by", "no_waiting_for_the_disk")

ERRORS = [errno.ENOSPC, errno.EIO, errno.EROFS, errno.EDQUOT, errno.EMFILE, errno.EACCES]
by_moment = pytest.mark.parametrize("after", [False, True], ids=["before the call", "after the call"])
by_sharing = pytest.mark.parametrize("sharing", [False, True], ids=["owner", "sharer"])


@by_sharing
@pytest.mark.parametrize("lasting", [False, True], ids=["once", "from then on"])
@pytest.mark.parametrize("number", ERRORS if LONG else ERRORS[:3], ids=lambda number: errno.errorcode[number])
def test_an_error_at_any_call_is_all_or_nothing_and_the_error_says_which(
    tmp_path: Path, number: int, lasting: bool, sharing: bool
) -> None:
    outcomes = set()
    for nth in itertools.count(1):
        directory = tmp_path / str(nth)
        with filled(directory, sharing=sharing) as manager:
            descriptors = open_descriptors()
            error: Exception | None = None
            with failing(directory, failure=OSError(number, "made up"), nth=nth, lasting=lasting) as injector:
                try:
                    transact(manager)
                except (TransactionFailed, CheckpointWriteFailed, DirectoryLocked, DirectoryUnusable) as raised:
                    error = raised.with_traceback(None)
            assert open_descriptors() == descriptors
            if error is None:
                expected = [AFTER]
            elif getattr(error, "committed", False):
                outcomes.add("committed")
                expected = [AFTER]
            elif getattr(error, "in_doubt", False):
                outcomes.add("in doubt")
                expected = [BEFORE, AFTER]
            else:
                outcomes.add("nothing")
                expected = [BEFORE]
            now = values(manager)
            assert now in expected, str(error)
            assert as_a_reader_sees_it(directory) == now
            if nth % 2:
                refused = lasting or (injector.failed and injector.failed.name == "unlink")  # a temp file may be left
                check_that_it_goes_on(manager, directory, leaves=".transaction" if refused else ".t")
                expected = [AFTER]
        check_reopened(directory, *expected)
        if injector.failed is None:
            break
    assert nth > 30
    assert outcomes >= {"nothing", "committed"}
    assert ("in doubt" in outcomes) == lasting, "two syncs have to fail for that"


@by_sharing
def test_a_kill_before_any_call_leaves_all_or_nothing(tmp_path: Path, sharing: bool) -> None:
    seen = []
    for nth in itertools.count(1):
        directory = tmp_path / str(nth)
        manager = filled(directory, sharing=sharing)
        died = killed(directory, nth, transact, manager)
        manager.close()
        if not died:
            break
        seen.append(as_a_reader_sees_it(directory))
        check_reopened(directory, seen[-1])
    assert nth > 25
    assert [outcome for outcome, _ in itertools.groupby(seen)] == [BEFORE, AFTER], "first nothing, then all of it"


@by_sharing
@by_moment
def test_an_interrupt_at_any_call_leaves_all_or_nothing(tmp_path: Path, after: bool, sharing: bool) -> None:
    for nth in itertools.count(1):
        directory = tmp_path / str(nth)
        with filled(directory, sharing=sharing) as manager:
            descriptors = open_descriptors()
            call = interrupted(directory, Moment(nth, after, KeyboardInterrupt()), transact, manager)
            if not (after and call and call.name == "open"):
                assert open_descriptors() == descriptors
            assert values(manager) in (BEFORE, AFTER)
            if nth % 2:
                check_that_it_goes_on(manager, directory)
            else:
                manager.create_checkpoint("d", OLD)
                manager.remove_checkpoint("d")
        check_reopened(directory, BEFORE, AFTER)
        if not call:
            break
    assert nth > 25


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("more", [0, 3] if LONG else [0], ids=lambda more: f"{more} more")
def test_a_signal_handler_that_raises_anywhere_leaves_all_or_nothing(real_directory: Path, more: int) -> None:
    manager = filled(real_directory)

    def act() -> Callable[[], object]:
        with manager.transaction() as transaction:
            transaction.create_checkpoint("a", OLD)
            transaction.remove_checkpoint("b")
            transaction.create_checkpoint("c", OLD)
        return lambda: transact(manager)

    def check() -> None:
        assert in_time(lambda: values(manager)) in (BEFORE, AFTER)
        in_time(lambda: manager.create_checkpoint("a", Lease("next")))

    assert everywhere(act, check, more) > 300
    in_time(manager.close)
    check_reopened(real_directory, AFTER)
