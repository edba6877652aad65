"""The steps of a change, one per file, made one after the other by the owner of the directory.

Root acts as the agent's user, so that new files look as if the agent had made them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass

from checkpointmanager import CheckpointError, DirectoryLocked, FileStore, RecoveryPlan, Store

from .. import bundle
from ..etcd import SCHEME, place_in, refresh
from ..findings.agent import AgentUser, Held, LockState, acting_as_agent, lock_of
from ..findings.examine import examine_path
from ..findings.finding import Finding, State
from ..targets import Target

Count = Callable[[], None]  # called after each step


class Blocked(Exception):
    """Nothing could be done; the text says why in a sentence."""


@dataclass(slots=True)
class Step:
    """One file, as it was found, and what will be done about it, or was done."""

    target: Target
    found: Finding
    plan: RecoveryPlan | None = None
    # repaired, rolled-back, discarded, finished, dropped, restored, removed, deleted; or good, stays, left
    action: str = ""
    detail: str = ""
    quarantined: str = ""
    failed: bool = False
    errno: int = 0  # of the failure

    @property
    def is_open(self) -> bool:
        """True if nothing was done about the file, or will be."""
        return self.action == "left"

    @property
    def is_damaged(self) -> bool:
        """True if the file is still damaged, or will be."""
        return self.is_open and self.found.state is State.DAMAGED

    @property
    def is_change(self) -> bool:
        """True if the file was changed, or will be."""
        return self.action not in ("left", "good", "stays")

    def decide(self, action: str, detail: str) -> None:
        self.action, self.detail = action, detail

    def leave(self, why: str, errno: int = 0) -> None:
        """Record that the file stays as it is, and why."""
        self.action, self.failed, self.detail, self.errno = "left", True, why, errno


def each_step(steps: Sequence[Step], work: Callable[[Step], None], count: Count) -> int:
    """Make one step after the other: a failure costs only its own. Returns how many were made before Ctrl-C."""
    for number, step in enumerate(steps):
        try:
            work(step)
        except (CheckpointError, OSError) as error:
            step.leave(str(error), getattr(error, "errno", 0) or 0)
        except KeyboardInterrupt:
            return number
        count()
    return len(steps)


def after_interrupt(steps: Sequence[Step]) -> None:
    """Record what Ctrl-C left undone. The first of these steps had been begun: its file shows whether it was made."""
    for step in steps:
        refresh(step.target.path)
        if _seen(examine_path(step.target.path)) == _seen(step.found):
            step.leave("interrupted before it was changed")
        else:
            step.detail = "interrupted when it had just been changed"


def _seen(found: Finding) -> tuple[object, ...]:
    return found.state, found.errno, found.header and found.header.generation


def read_back(step: Step) -> None:
    """Read what was written again; it must be a whole checkpoint."""
    refresh(step.target.path)
    again = examine_path(step.target.path)
    if not again.header:
        step.leave(f"written, but {again.word}: {again.detail}")


@contextmanager
def owned_store(
    directory: str, owner: str = "", *, read_only: bool = False
) -> Iterator[tuple[Store, AgentUser | None]]:
    """The store of a directory or an etcd prefix, with the lock unless `read_only`; and as whom root acts, if any."""
    with ExitStack() as stack:
        user: AgentUser | None = None
        try:
            user = stack.enter_context(acting_as_agent(directory))
            store: Store
            if directory.startswith(SCHEME):
                store = place_in(directory).open(read_only=read_only, owner=owner)
            else:
                # Whether an insecure directory is used is the agent's decision.
                store = FileStore(directory, read_only=read_only, owner=owner, allow_insecure=True)
            stack.enter_context(closing(store))
        except (CheckpointError, OSError) as error:
            raise Blocked(_why_not(directory, error, user)) from error
        yield store, user


def refuse_if_held(directory: str) -> None:
    """Raises Blocked before the user is asked to confirm something that cannot be done."""
    if directory.startswith(bundle.SCHEME):
        raise Blocked("a bundle is never changed; restore it to a directory")
    lock = lock_of(directory)
    if lock.held is Held.HELD:
        raise Blocked(_locked(lock))


def _why_not(directory: str, error: CheckpointError | OSError, user: AgentUser | None) -> str:
    if not isinstance(error, DirectoryLocked):
        return f"{error}{f' (tried as {user}, who owns the directory)' if user else ''}"
    lock = lock_of(directory)
    return _locked(lock) if lock.held is Held.HELD else f"{error}; stop that process first, then try again"


def _locked(lock: LockState) -> str:
    return f"the lock is {lock}; stop that process first, then try again"
