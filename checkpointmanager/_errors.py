"""The errors that callers see. Each names the file and the next step; none ever contains data.

All derive from CheckpointError, and all survive pickling, so that they can cross a process pool.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from .format import Damaged, Reason, describe_error

if TYPE_CHECKING:
    from .format import LockOwner


class CheckpointError(Exception):
    """The base of every error of this library: catch it to catch all of them.

    If an error concerns one checkpoint, `key` and `path` name it; otherwise `path` is the directory. Errors that come
    from a system call have its `errno`.
    """

    def __str__(self) -> str:
        return str(self.args[0]) if self.args else type(self).__name__

    def __reduce__(self) -> tuple[Callable[..., CheckpointError], tuple[Any, ...]]:
        state = dict(self.__dict__)
        if isinstance(self, OSError):
            state["errno"] = self.errno
        return _restore, (type(self), self.args, state)


class InvalidKey(CheckpointError, ValueError):
    """The key cannot name a checkpoint; nothing was read or written.

    Use a str that is not empty, valid Unicode, and at most 200 bytes long once every character but letters, digits,
    "-", "_" and "." is written as %XX.
    """

    def __init__(self, key: object) -> None:
        super().__init__(
            f"invalid key {_shortened(key)}: a key is a str that is not empty, valid Unicode, and at most 200 bytes "
            "long, where every character but letters, digits, '-', '_' and '.' takes three bytes or more"
        )
        self.key = key if isinstance(key, str) else repr(key)


class CheckpointNotFound(CheckpointError, KeyError):
    """There is no checkpoint under this key. The only error that means "new".

    Create it, or pass a `default` to get_checkpoint or update_checkpoint.
    """

    def __init__(self, key: str, path: str) -> None:
        super().__init__(f"{path}: no such checkpoint")
        self.key = key
        self.path = path


class CheckpointExists(CheckpointError):
    """create_checkpoint(overwrite=False) found a checkpoint, good or damaged, under this key. Nothing was written.

    Read it to see whose it is; update it, or create it without overwrite=False.
    """

    def __init__(self, key: str, path: str) -> None:
        super().__init__(f"{path}: already exists, and overwrite=False was passed; nothing was written")
        self.key = key
        self.path = path


class CorruptCheckpoint(CheckpointError):
    """The file is damaged. Its bytes are untouched, and all other checkpoints still load.

    Call recover_checkpoint(key), which repairs it if the checksum proves the repair; or look at plan_recovery(key)
    first, or run `checkpoint-verify diagnose`. Writing or removing the checkpoint replaces it too, after a copy has
    gone to quarantine. Never treat it as "new".

    reason    what is wrong, as a word to branch on
    detail    the same in words; never quotes data
    expected  the checksum that the file states, if it is known
    actual    the checksum of the bytes, if it is known
    unverified_data  what can still be parsed as JSON from the damaged bytes, or None. No checksum vouches for it:
              use it as evidence, to hold back what it names, and never as the value.
    """

    errno = None  # the bytes were read

    def __init__(self, key: str, path: str, damage: Damaged, unverified_data: Any = None) -> None:
        super().__init__(
            f"{path}: {damage.reason} ({damage.detail}); the bytes are untouched. {_next_step(damage, path)}"
        )
        self.key = key
        self.path = path
        self.reason = damage.reason
        self.detail = damage.detail
        self.expected = damage.expected
        self.actual = damage.actual
        self.unverified_data = unverified_data


class CheckpointUnreadable(CheckpointError, OSError):
    """The file could not be read; `errno` says why. That says nothing about its content, and is not corruption.

    Check permissions, the kernel log, and the process's limit of descriptors, then read it again. Never treat it
    as "new". `reason` and `detail` are as for CorruptCheckpoint.
    """

    reason = Reason.UNREADABLE

    def __init__(self, key: str, path: str, damage: Damaged) -> None:
        super().__init__(f"{path}: {damage.detail}; it could not be read. {_next_step(damage, path)}")
        self.errno = damage.errno
        self.key = key
        self.path = path
        self.detail = damage.detail


class CheckpointTooNew(CheckpointError):
    """A newer program wrote the file, and this program must not read it. This is not corruption.

    Run the newer version again, or remove the checkpoint if it is not needed. `detail` has both versions.
    """

    def __init__(self, key: str, path: str, detail: str) -> None:
        super().__init__(
            f"{path}: written by a newer program: {detail}. The file is not damaged. "
            "Run the newer version, or remove the checkpoint if it is not needed"
        )
        self.key = key
        self.path = path
        self.detail = detail


class SchemaMismatch(CheckpointError):
    """The file is whole, but its data does not fit this program's schema: an error of the program, not corruption.

    Fix the schema or its migration and leave the file alone: it holds what was written. `where` is the place in the
    data, with [*] for any key of a dict, `why` what is wrong there, and `detail` both. `version` and `generation` are
    the file's. `__cause__` is the error that a migration, decode= or a class raised: its type and traceback, without
    the text, which may quote data.
    """

    def __init__(self, key: str, path: str, where: str, why: str, *, version: int, generation: int) -> None:
        super().__init__(
            f"{path}: version {version} of the data does not fit this program: {where} {why}. The checksum holds, so "
            "the file is whole. Fix the schema or its migration, and leave the file as it is"
        )
        self.key = key
        self.path = path
        self.where = where
        self.why = why
        self.detail = f"{where} {why}"
        self.version = version
        self.generation = generation


class PlanOutdated(CheckpointError):
    """The checkpoint has changed since its recovery was planned. Nothing was touched.

    Call plan_recovery again and look at the new plan.
    """

    def __init__(self, key: str, path: str) -> None:
        super().__init__(
            f"{path}: has changed since its recovery was planned, so nothing was done; "
            f"call plan_recovery({key!r}) again and look at the new plan"
        )
        self.key = key
        self.path = path


class WrongKind(CheckpointError):
    """The file holds a kind of state (`found`) other than the schema's (`expected`). Nothing was touched.

    A directory holds one kind, so this is most likely another agent's directory: check the path.
    """

    def __init__(self, key: str, path: str, found: str, expected: str) -> None:
        super().__init__(
            f"{path}: holds a checkpoint of kind {found!r} where {expected!r} is expected; "
            "a directory holds one kind, so check that this is the directory you meant"
        )
        self.key = key
        self.path = path
        self.found = found
        self.expected = expected


class UnstorableValue(CheckpointError, ValueError):
    """The value cannot be stored without loss: NaN, a set in plain JSON, a wrong type. Nothing was written.

    Fix the value or its schema: `where` is its place in the data, `why` what is wrong with it.
    """

    def __init__(self, where: str, why: str) -> None:
        super().__init__(f"{where}: {why}; nothing was written")
        self.where = where
        self.why = why


class CheckpointWriteFailed(CheckpointError, OSError):
    """A write, update or removal did not succeed.

    `in_doubt` False: the change was certainly not made. True: a crash may bring it back or take it away. Repeat the
    call: it makes the change again and syncs it.
    """

    def __init__(self, key: str, path: str, error: OSError, *, in_doubt: bool) -> None:
        outcome = "the change may or may not survive; repeat the call" if in_doubt else "nothing was changed"
        super().__init__(f"{path}: {describe_error(error)}; {outcome}")
        self.errno = error.errno
        self.key = key
        self.path = path
        self.in_doubt = in_doubt


class BatchFailed(CheckpointWriteFailed):
    """Some changes of a batch did not become durable; all others did. `failures` has the error of each key.

    Repeat those that failed. `key` is the first of them, and `in_doubt` is True if any of them is in doubt.
    """

    def __init__(self, path: str, failures: Mapping[str, CheckpointError]) -> None:
        in_doubt = any(getattr(failure, "in_doubt", False) for failure in failures.values())
        first = next(iter(failures.values()))
        CheckpointError.__init__(
            self, f"{path}: {len(failures)} of the batch failed, all others are durable; the first: {first}"
        )
        self.errno = getattr(first, "errno", None)
        self.key = next(iter(failures))
        self.path = path
        self.in_doubt = in_doubt
        self.failures = dict(failures)


class TransactionFailed(CheckpointWriteFailed):
    """A transaction was not acknowledged. `key` is the key at fault, "" if there is none.

    `in_doubt` False: none of its changes was made. True: a crash may leave all of them or none; repeat the
    transaction. `__cause__` is what went wrong.
    """

    def __init__(self, key: str, path: str, error: Exception, *, in_doubt: bool = False) -> None:
        reason = str(error)
        if isinstance(error, OSError) and not isinstance(error, CheckpointError):
            reason = describe_error(error)
        outcome = "none of the transaction's changes was made"
        if in_doubt:
            outcome = "the outcome is all of the transaction's changes or none; repeat it"
        place = "" if reason.startswith(path) else f"{path}: "
        CheckpointError.__init__(self, f"{place}{reason}; {outcome}")
        self.errno = getattr(error, "errno", None)
        self.key = key
        self.path = path
        self.in_doubt = in_doubt


class RetainRefused(CheckpointError):
    """CheckpointCache.retain would have removed more than it may, or the view was not complete. Nothing was removed.

    `keys` are those that the view does not name; empty if the view was not complete. Check whether the view is right
    before you raise `at_most`.
    """

    def __init__(self, path: str, why: str, keys: Sequence[str] = ()) -> None:
        super().__init__(f"{path}: {why}; nothing was removed")
        self.path = path
        self.keys = tuple(keys)


class DirectoryUnusable(CheckpointError, OSError):
    """The directory cannot be opened, created, listed or synced.

    `errno` says why: check that it exists, is mounted, and that this user may use it.
    """

    def __init__(self, path: str, error: OSError) -> None:
        super().__init__(
            f"{path}: {describe_error(error)}; check that the directory exists, is mounted and may be used"
        )
        self.errno = error.errno
        self.path = path


class InsecureDirectory(CheckpointError):
    """Other users could plant or replace files in the directory, so it was not opened.

    Make it private (chmod 0700, chown), or pass allow_insecure=True if all of them are trusted.
    """

    def __init__(self, path: str, why: str) -> None:
        super().__init__(
            f"{path}: {why}; make it private (chmod 0700, chown), or pass allow_insecure=True if every user "
            "who can write there is trusted (a Kubernetes emptyDir is 0777)"
        )
        self.path = path


class DirectoryLocked(CheckpointError):
    """Another owner has the directory, or this one has lost it. `owner` is the other owner, if known.

    At open: stop the other process, wait for it with `lock_timeout`, or use `sharing` or `read_only`. While open: no
    more writes succeed; close this manager and open another.
    """

    def __init__(self, path: str, why: str, owner: LockOwner | None = None) -> None:
        super().__init__(f"{path}: {why}{f': {owner}' if owner else ''}")
        self.path = path
        self.owner = owner


class ManagerClosed(CheckpointError):
    """The manager was closed, or inherited through a fork, or one of its own calls tries to close it.

    Open another manager; in a child process, open it after the fork.
    """

    FORKED: ClassVar[str] = "was opened before a fork and belongs to the parent process; open another"  # in a child

    def __init__(self, path: str, why: str) -> None:
        super().__init__(f"{path}: the manager {why}")
        self.path = path


def _restore(cls: type[CheckpointError], args: tuple[Any, ...], state: dict[str, Any]) -> CheckpointError:
    error = cls.__new__(cls)
    error.args = args
    for name, value in state.items():
        setattr(error, name, value)
    return error


def _next_step(damage: Damaged, path: str) -> str:
    if damage.reason is Reason.UNREADABLE:
        return "Check permissions and the kernel log for disk errors, then try again"
    if damage.reason is Reason.NOT_A_FILE:
        return "Look at what is in its place, and move it away"
    if damage.reason is Reason.TOO_LARGE:
        return "Raise max_bytes if the size is right, otherwise look at the file"
    return f"Run: checkpoint-verify diagnose {shlex.quote(path)}"


def _shortened(key: object) -> str:
    text = repr(key)
    return text if len(text) <= 80 else f"{text[:60]}… ({len(text)} characters)"
