"""The errors callers see. Each names the file and the next step; none ever contains data.

All derive from CheckpointError, and all survive pickling, so that they can cross a process pool.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from ._format.reason import Damaged, Reason, reason_of

if TYPE_CHECKING:
    from ._format.lockowner import LockOwner


class CheckpointError(Exception):
    """The base of every error of this library."""

    def __str__(self) -> str:
        return str(self.args[0]) if self.args else type(self).__name__

    def __reduce__(self) -> tuple[Callable[..., CheckpointError], tuple[Any, ...]]:
        state = dict(self.__dict__)
        if isinstance(self, OSError):
            state["errno"] = self.errno
        return _restore, (type(self), self.args, state)


class InvalidKey(CheckpointError, ValueError):
    """The key cannot name a checkpoint."""

    def __init__(self, key: object) -> None:
        super().__init__(
            f"invalid key {_shortened(key)}: a key is a str of 1 to 200 letters, digits, '-', '_' or '.', "
            "and starts and ends with a letter or digit"
        )
        self.key = key if isinstance(key, str) else repr(key)


class CheckpointNotFound(CheckpointError, KeyError):
    """There is no checkpoint under this key. The only error that means "new"."""

    def __init__(self, key: str, path: str) -> None:
        super().__init__(f"{path}: no such checkpoint")
        self.key = key
        self.path = path


class CheckpointExists(CheckpointError):
    """create_checkpoint(overwrite=False) met a checkpoint, good or damaged, under this key."""

    def __init__(self, key: str, path: str) -> None:
        super().__init__(f"{path}: already exists, and overwrite=False was asked for; nothing was written")
        self.key = key
        self.path = path


class CorruptCheckpoint(CheckpointError):
    """The file cannot be trusted. Its bytes are untouched; other checkpoints are not concerned."""

    def __init__(self, key: str, path: str, damage: Damaged) -> None:
        super().__init__(
            f"{path}: {damage.reason} ({damage.detail}); the bytes are untouched. {_next_step(damage, path)}"
        )
        self.key = key
        self.path = path
        self.reason = damage.reason
        self.detail = damage.detail
        self.expected = damage.expected
        self.actual = damage.actual
        self.errno = damage.errno


class CheckpointTooNew(CheckpointError):
    """Written by a newer program, and not for reading by this one. This is not corruption."""

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

    `where` is the place in the data, with [*] for any key of a dict. What a migration, decode= or a class raised
    is the `__cause__`: its type and traceback, without the text, which may quote data.
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
    """The checkpoint is not what it was when its recovery was planned. Nothing was touched."""

    def __init__(self, key: str, path: str) -> None:
        super().__init__(
            f"{path}: has changed since its recovery was planned, so nothing was done; "
            f"call plan_recovery({key!r}) again and look at the new plan"
        )
        self.key = key
        self.path = path


class WrongKind(CheckpointError):
    """The file belongs to another kind of state: most likely the directory is another agent's."""

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
    """The value would not come back as it went in. `where` is its place in the data."""

    def __init__(self, where: str, why: str) -> None:
        super().__init__(f"{where}: {why}; nothing was written")
        self.where = where
        self.why = why


class CheckpointWriteFailed(CheckpointError, OSError):
    """A write, update or removal did not succeed.

    `in_doubt` False: the old content is certainly still in place. True: it is not known whether the change
    survives a power loss. Readers see what was written, and what was to be removed. Repeat the call, which then
    makes the change and syncs it anew.
    """

    def __init__(self, key: str, path: str, error: OSError, *, in_doubt: bool) -> None:
        outcome = (
            "the change may or may not survive a power loss; repeat the call"
            if in_doubt
            else "the old content is still in place"
        )
        super().__init__(f"{path}: {reason_of(error)}; {outcome}")
        self.errno = error.errno
        self.key = key
        self.path = path
        self.in_doubt = in_doubt


class BatchFailed(CheckpointWriteFailed):
    """Some changes of a batch did not become durable. `failures` has each one's error; all others did."""

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
    """Several changes that belong together were not acknowledged. `key` is the one to blame, "" if there is none.

    Neither `committed` nor `in_doubt`: none of them was made. `in_doubt`: a power loss may leave all of them or none;
    repeat the transaction. `committed`: all of them are durable and nothing takes them back, but not all names have
    changed yet. That is done first by the next change of one of these keys, the next transaction and the next owner;
    readers see the new content already. `__cause__` is what went wrong.
    """

    def __init__(
        self, key: str, path: str, error: Exception, *, in_doubt: bool = False, committed: bool = False
    ) -> None:
        reason = str(error)
        if isinstance(error, OSError) and not isinstance(error, CheckpointError):
            reason = reason_of(error)
        outcome = "none of the transaction's changes was made"
        if committed:
            outcome = "the transaction is committed; the next change of one of its keys, or the next owner, finishes it"
        elif in_doubt:
            outcome = "a power loss may leave all of the transaction's changes or none; repeat it"
        place = "" if reason.startswith(path) else f"{path}: "
        CheckpointError.__init__(self, f"{place}{reason}; {outcome}")
        self.errno = getattr(error, "errno", None)
        self.key = key
        self.path = path
        self.in_doubt = in_doubt
        self.committed = committed


class DirectoryUnusable(CheckpointError, OSError):
    """The directory cannot be opened, created, listed or synced."""

    def __init__(self, path: str, error: OSError) -> None:
        super().__init__(f"{path}: {reason_of(error)}; check that the directory exists, is mounted and may be used")
        self.errno = error.errno
        self.path = path


class InsecureDirectory(CheckpointError):
    """Somebody else could plant or replace files in the directory."""

    def __init__(self, path: str, why: str) -> None:
        super().__init__(
            f"{path}: {why}; make it private (chmod 0700, chown), or pass allow_insecure=True if every user "
            "who can write there is trusted (a Kubernetes emptyDir is 0777)"
        )
        self.path = path


class DirectoryLocked(CheckpointError):
    """Another owner has the directory. `owner` says who, as far as it is known."""

    def __init__(self, path: str, why: str, owner: LockOwner | None = None) -> None:
        super().__init__(f"{path}: {why}{f': {owner}' if owner else ''}")
        self.path = path
        self.owner = owner


class ManagerClosed(CheckpointError):
    """The manager was closed, or inherited through a fork; or it is being closed from inside a call of its own."""

    FORKED: ClassVar[str] = "was opened before a fork and belongs to the parent process; open another"

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
        return "Look at what stands there; writing or removing the checkpoint replaces it"
    if damage.reason is Reason.TOO_LARGE:
        return "Raise max_bytes if the size is right, else look at the file"
    return f"Run: checkpoint-verify diagnose {shlex.quote(path)}"


def _shortened(key: object) -> str:
    text = repr(key)
    return text if len(text) <= 80 else f"{text[:60]}… ({len(text)} characters)"
