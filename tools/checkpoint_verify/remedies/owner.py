"""Takes a directory's lock for a change; root acts as the agent's user meanwhile."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from typing import Any, Unpack

from checkpointmanager import (
    ANY_KIND,
    CheckpointError,
    CheckpointManager,
    DirectoryLocked,
    FileOptions,
    FileStore,
    Store,
)

from .. import bundle
from ..etcd import SCHEME, place_in, store_at
from ..findings.access import AgentUser, acting_as_agent
from ..findings.lock import Held, LockState, lock_of
from ..screens.screen import Progress
from .step import Step


class Blocked(Exception):
    """Nothing could be done; the text says why in a sentence."""


@contextmanager
def owned(directory: str, **options: Unpack[FileOptions]) -> Iterator[tuple[CheckpointManager[Any], AgentUser | None]]:
    """The library's own manager of the directory, and the user as which root acts meanwhile, if any."""
    with _as_agent(directory) as user, ExitStack() as stack:
        options["allow_insecure"] = True  # the agent decides that
        place = store_at(directory, read_only=options.get("read_only", False), owner=options.get("owner", ""))
        files = options if isinstance(place, str) else FileOptions()  # a store has its own
        with _saying_why_not(directory, user):
            manager = stack.enter_context(CheckpointManager(place, ANY_KIND, **files))
        yield manager, user


@contextmanager
def owned_store(directory: str, owner: str) -> Iterator[Store]:
    """The store itself, with the lock: for bytes that are put in place as they are."""
    with _as_agent(directory) as user, ExitStack() as stack:
        with _saying_why_not(directory, user):
            store: Store
            if directory.startswith(SCHEME):
                store = place_in(directory).open(owner=owner)
            else:
                store = FileStore(directory, owner=owner, allow_insecure=True)
            stack.enter_context(closing(store))
        yield store


def each_step(steps: Sequence[Step], work: Callable[[Step], None], bar: Progress) -> int:
    """Work on one step after the other: a failure costs only its own. Returns how many were done before Ctrl-C."""
    bar.expect(len(steps))
    for number, step in enumerate(steps):
        try:
            work(step)
        except (CheckpointError, OSError) as error:
            step.leave(str(error), getattr(error, "errno", 0) or 0)
        except KeyboardInterrupt:
            return number
        bar.step()
    return len(steps)


def leave_the_rest(steps: Sequence[Step]) -> None:
    """Record what Ctrl-C left undone; the first of them had been begun."""
    for number, step in enumerate(steps):
        step.leave("interrupted before it was changed" if number else "interrupted while it was changed; look again")


def refuse_if_held(directory: str) -> None:
    """Raises Blocked before the user is asked to confirm something that cannot be done."""
    if directory.startswith(bundle.SCHEME):
        raise Blocked("a bundle is never changed; restore it to a directory")
    lock = lock_of(directory)
    if lock.held is Held.HELD:
        raise Blocked(_locked(lock))


@contextmanager
def _as_agent(directory: str) -> Iterator[AgentUser | None]:
    with ExitStack() as stack:
        with _saying_why_not(directory, None):
            user = stack.enter_context(acting_as_agent(directory))
        yield user


@contextmanager
def _saying_why_not(directory: str, user: AgentUser | None) -> Iterator[None]:
    try:
        yield
    except (CheckpointError, OSError) as error:
        raise Blocked(_why_not(directory, error, user)) from error


def _why_not(directory: str, error: CheckpointError | OSError, user: AgentUser | None) -> str:
    if not isinstance(error, DirectoryLocked):
        return f"{error}{f' (tried as {user}, who owns the directory)' if user else ''}"
    lock = lock_of(directory)
    return _locked(lock) if lock.held is Held.HELD else f"{error}; stop that process first, then try again"


def _locked(lock: LockState) -> str:
    return f"the lock is {lock}; stop that process first, then try again"
