"""A checkpointer with a window: tests look at each call, count it, hold it, let it fail or die in it."""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterable

from checkpointmanager import CheckpointWriteFailed
from draState import Checkpointer, ClaimInfoState, ClaimInfoStateList

Hook = Callable[[str, tuple[str, ...]], object]


def no_space(uid: str) -> CheckpointWriteFailed:
    """Nothing has changed on disk."""
    return CheckpointWriteFailed(uid, f"/claims/{uid}.json", OSError(errno.ENOSPC, "No space left"), in_doubt=False)


def lost_sync(uid: str) -> CheckpointWriteFailed:
    """The change was made, but nobody knows whether it survives a power loss."""
    return CheckpointWriteFailed(uid, f"/claims/{uid}.json", OSError(errno.EIO, "I/O error"), in_doubt=True)


class WatchedCheckpointer:
    """`before` and `after` are called around each change with its name and claim UIDs; they may raise."""

    def __init__(self, inner: Checkpointer) -> None:
        self.inner = inner
        self.calls: list[tuple[str, tuple[str, ...]]] = []
        self.before: Hook = lambda *_: None
        self.after: Hook = lambda *_: None

    def get_or_create(self) -> ClaimInfoStateList:
        return self.inner.get_or_create()

    def store(self, claims: ClaimInfoState | Iterable[ClaimInfoState]) -> None:
        many = (claims,) if isinstance(claims, ClaimInfoState) else tuple(claims)
        uids = self._enter("store", [claim.claim_uid for claim in many])
        self.inner.store(claims if isinstance(claims, ClaimInfoState) else many)
        self.after("store", uids)

    def store_list(self, claims: Iterable[ClaimInfoState]) -> None:
        many = tuple(claims)
        uids = self._enter("store_list", [claim.claim_uid for claim in many])
        self.inner.store_list(many)
        self.after("store_list", uids)

    def delete(self, *uids: str) -> None:
        self._enter("delete", uids)
        self.inner.delete(*uids)
        self.after("delete", tuple(sorted(uids)))

    def close(self) -> None:
        self.inner.close()

    def fail_before(self, operation: str, error: BaseException) -> None:
        """Every such call raises before anything has changed on disk."""
        self.before = _raising(operation, error)

    def fail_after(self, operation: str, error: BaseException) -> None:
        """Every such call raises when all has changed on disk."""
        self.after = _raising(operation, error)

    def work_again(self) -> None:
        self.before = self.after = lambda *_: None

    def _enter(self, operation: str, uids: Iterable[str]) -> tuple[str, ...]:
        listed = tuple(sorted(uids))
        self.calls.append((operation, listed))
        self.before(operation, listed)
        return listed


def _raising(operation: str, error: BaseException) -> Hook:
    def hook(called: str, _: tuple[str, ...]) -> None:
        if called == operation:
            raise error

    return hook
