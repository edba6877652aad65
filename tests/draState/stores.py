"""A store with hooks: tests can inspect, count or block each commit, and let it fail or die."""

from __future__ import annotations

import errno
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from checkpointmanager import BatchFailed, CheckpointError, CheckpointWriteFailed, Put, Remove, Store, TransactionFailed

Hook = Callable[[str, tuple[str, ...]], object]


def no_space(uid: str) -> CheckpointWriteFailed:
    """Nothing has changed on disk."""
    return CheckpointWriteFailed(uid, f"/claims/{uid}.json", OSError(errno.ENOSPC, "No space left"), in_doubt=False)


def lost_sync(uid: str) -> CheckpointWriteFailed:
    """The change was made, but may not survive a power loss."""
    return CheckpointWriteFailed(uid, f"/claims/{uid}.json", OSError(errno.EIO, "I/O error"), in_doubt=True)


class WatchedStore:
    """`before` and `after` are called around each commit with "store" or "delete" and its keys; they may raise.

    A commit fails with the error given to `fail`; if that is in doubt, the change is made all the same.
    """

    def __init__(self, inner: Store) -> None:
        self.inner = inner
        self.calls: list[tuple[str, tuple[str, ...]]] = []
        self.before: Hook = lambda *_: None
        self.after: Hook = lambda *_: None
        self._failing: dict[str, CheckpointWriteFailed | BatchFailed] = {}

    def commit(self, changes: Sequence[Put | Remove], *, together: bool = False) -> Mapping[str, CheckpointWriteFailed]:
        """The first failure fails a whole transaction."""
        operation = "store" if any(isinstance(change, Put) for change in changes) else "delete"
        keys = tuple(sorted(change.key for change in changes))
        self.calls.append((operation, keys))
        self.before(operation, keys)
        failures = self._failures(operation, keys)
        refused = {key: failure for key, failure in failures.items() if not failure.in_doubt}
        if together and refused:
            raise _of_a_transaction(refused)
        made = [change for change in changes if change.key not in refused]
        failures |= self.inner.commit(made, together=together)
        self.after(operation, keys)
        if together and failures:
            raise _of_a_transaction(failures)
        return failures

    def fail(self, operation: str, error: BaseException) -> None:
        """Make every such commit fail: a BatchFailed for its keys only, a CheckpointWriteFailed for all.

        A CheckpointError is raised before any change; any other error after all changes are on disk.
        """
        if isinstance(error, CheckpointWriteFailed):
            self._failing[operation] = error
        elif isinstance(error, CheckpointError):
            self.before = _raising(operation, error)
        else:
            self.after = _raising(operation, error)

    def work_again(self) -> None:
        self.before = self.after = lambda *_: None
        self._failing.clear()

    def _failures(self, operation: str, keys: Sequence[str]) -> dict[str, CheckpointWriteFailed]:
        error = self._failing.get(operation)
        if isinstance(error, BatchFailed):
            return {key: failure for key, failure in error.failures.items() if key in keys}  # type: ignore[misc]
        return dict.fromkeys(keys, error) if error else {}

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)


def _of_a_transaction(failures: Mapping[str, CheckpointWriteFailed]) -> TransactionFailed:
    key, failure = next(iter(failures.items()))
    failed = TransactionFailed(key, failure.path, failure, in_doubt=failure.in_doubt)
    failed.__cause__ = failure
    return failed


def _raising(operation: str, error: BaseException) -> Hook:
    def hook(called: str, _: tuple[str, ...]) -> None:
        if called == operation:
            raise error

    return hook
