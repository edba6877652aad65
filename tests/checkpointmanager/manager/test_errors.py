"""Every error names the file and the next step, and crosses a process boundary whole."""

from __future__ import annotations

import copy
import errno
import inspect
import pickle

import pytest

import checkpointmanager
from checkpointmanager import (
    BatchFailed,
    CheckpointError,
    CheckpointExists,
    CheckpointNotFound,
    CheckpointTooNew,
    CheckpointUnreadable,
    CheckpointWriteFailed,
    CorruptCheckpoint,
    DirectoryLocked,
    DirectoryUnusable,
    InsecureDirectory,
    InvalidKey,
    LockOwner,
    ManagerClosed,
    PlanOutdated,
    Reason,
    RetainRefused,
    SchemaMismatch,
    TransactionFailed,
    UnstorableValue,
    WrongKind,
)
from checkpointmanager.format import Damaged

PATH = "/var/lib/agent/leases/k.json"
NO_SPACE = OSError(errno.ENOSPC, "No space left on device", "/some/other/name")
DAMAGE = Damaged(Reason.CHECKSUM_MISMATCH, "the file says so", expected="xxh3:1", actual="xxh3:2")
WRITE_FAILED = CheckpointWriteFailed("k", PATH, NO_SPACE, in_doubt=True)
HOLDER = LockOwner(pid=7, host="node", command="agent", since="2026-11-16T08:00:00Z", label="blue")
ERRORS: list[CheckpointError] = [
    CheckpointError("anything"),
    InvalidKey("a/b"),
    InvalidKey(7),
    CheckpointNotFound("k", PATH),
    CheckpointExists("k", PATH),
    CorruptCheckpoint("k", PATH, DAMAGE),
    CheckpointUnreadable("k", PATH, Damaged(Reason.UNREADABLE, "I/O error", errno=errno.EIO)),
    CheckpointTooNew("k", PATH, "its file format is 2"),
    PlanOutdated("k", PATH),
    RetainRefused("/var/lib/agent/leases", "6 of 8 keys would be removed", ["a", "b"]),
    SchemaMismatch("k", PATH, "$.a[*]", "is str, not int", version=2, generation=7),
    WrongKind("k", PATH, "Claim", "Lease"),
    UnstorableValue("$.a[1]", "is not a finite number"),
    WRITE_FAILED,
    CheckpointWriteFailed("k", PATH, OSError(), in_doubt=False),
    TransactionFailed("k", PATH, WRITE_FAILED, in_doubt=True),
    TransactionFailed("k", PATH, UnstorableValue("$", "is too large")),
    TransactionFailed("k", PATH, NO_SPACE),
    BatchFailed("/var/lib/agent/leases", {"k": WRITE_FAILED, "l": UnstorableValue("$", "is too large")}),
    DirectoryUnusable("/var/lib/agent/leases", NO_SPACE),
    InsecureDirectory("/var/lib/agent/leases", "is writable for everybody"),
    DirectoryLocked("/var/lib/agent/leases", "is in use", HOLDER),
    DirectoryLocked("/var/lib/agent/leases", "is in use"),
    ManagerClosed("/var/lib/agent/leases", "is closed"),
]


def visible(error: BaseException) -> object:
    """All that a caller can see, also of each failure in a batch."""
    state = dict(vars(error)) | {"errno": getattr(error, "errno", None)}
    state["failures"] = {key: visible(failure) for key, failure in state.get("failures", {}).items()}
    return type(error), str(error), error.args, state


def test_every_public_error_is_among_those_tested() -> None:
    public = {
        cls for _, cls in inspect.getmembers(checkpointmanager, inspect.isclass) if issubclass(cls, CheckpointError)
    }
    assert public == {type(error) for error in ERRORS}


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
def test_pickling_and_copying_keep_type_text_and_attributes(error: CheckpointError) -> None:
    for protocol in range(2, pickle.HIGHEST_PROTOCOL + 1):
        assert visible(pickle.loads(pickle.dumps(error, protocol))) == visible(error)
    assert visible(copy.copy(error)) == visible(copy.deepcopy(error)) == visible(error)


@pytest.mark.parametrize(
    ("error", "base"),
    [
        (CheckpointNotFound, KeyError),
        (InvalidKey, ValueError),
        (UnstorableValue, ValueError),
        (CheckpointWriteFailed, OSError),
        (CheckpointUnreadable, OSError),
        (BatchFailed, OSError),
        (TransactionFailed, OSError),
        (DirectoryUnusable, OSError),
    ],
)
def test_errors_are_also_what_python_calls_them(error: type, base: type) -> None:
    assert issubclass(error, base)


@pytest.mark.parametrize("error", [error for error in ERRORS if hasattr(error, "path")], ids=lambda e: type(e).__name__)
def test_a_message_begins_with_the_file(error: CheckpointError) -> None:
    assert str(error).startswith("/var/lib/agent/leases")
    assert "/some/other/name" not in str(error)


def test_a_write_that_failed_says_what_is_on_disk() -> None:
    assert WRITE_FAILED.errno == errno.ENOSPC
    assert "No space left on device; the change may or may not survive" in str(WRITE_FAILED)
    assert "nothing was changed" in str(CheckpointWriteFailed("k", PATH, NO_SPACE, in_doubt=False))


def test_a_batch_that_failed_has_the_error_of_each_key() -> None:
    failed = BatchFailed("/d", {"l": UnstorableValue("$", "is too large"), "k": WRITE_FAILED})
    assert (failed.key, failed.in_doubt, failed.errno) == ("l", True, None)
    assert str(failed).startswith("/d: 2 of the batch failed, all others are durable; the first: $: is too large")


def test_a_transaction_that_failed_says_what_became_of_it() -> None:
    nothing = TransactionFailed("k", PATH, NO_SPACE)
    doubtful = TransactionFailed("", PATH, NO_SPACE, in_doubt=True)
    assert str(nothing) == f"{PATH}: No space left on device; none of the transaction's changes was made"
    assert "all of the transaction's changes or none; repeat it" in str(doubtful)
    assert [error.errno for error in (nothing, doubtful)] == [errno.ENOSPC] * 2


@pytest.mark.parametrize("reason", [reason for reason in Reason if reason is not Reason.UNREADABLE])
def test_a_damaged_file_has_a_next_step_for_every_reason(reason: Reason) -> None:
    error = CorruptCheckpoint("k", PATH, Damaged(reason, "what was seen", expected="e", actual="a"))
    assert str(error).startswith(f"{PATH}: {reason} (what was seen); the bytes are untouched. ")
    assert any(step in str(error) for step in (f"checkpoint-verify diagnose {PATH}", "Check", "Raise", "Look"))
    assert (error.reason, error.detail, error.expected, error.actual) == (reason, "what was seen", "e", "a")


def test_a_file_that_could_not_be_read_is_no_damage_and_has_a_next_step() -> None:
    error = CheckpointUnreadable("k", PATH, Damaged(Reason.UNREADABLE, "I/O error", errno=errno.EIO))
    assert str(error).startswith(f"{PATH}: I/O error; it could not be read. Check permissions")
    assert (error.reason, error.errno, error.key) == (Reason.UNREADABLE, errno.EIO, "k")
    assert not isinstance(error, CorruptCheckpoint)


def test_a_long_key_is_shortened_in_the_message_and_kept_in_the_error() -> None:
    error = InvalidKey("x" * 5000)
    assert len(str(error)) < 300
    assert error.key == "x" * 5000
