"""Takes a directory's lock for a change; root acts as the agent's user meanwhile."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from typing import Any, Protocol, Unpack

from checkpointmanager import ANY_KIND, CheckpointError, CheckpointManager, DirectoryLocked, FileOptions

from ..etcd import SCHEME, CopiesInEtcd, place_in, store_at
from ..findings.access import AgentUser, acting_as_agent
from ..findings.lock import Held, LockState, lock_of
from . import quarantine
from .quarantine import Copy


class Blocked(Exception):
    """Nothing could be done; the text says why in a sentence."""


@contextmanager
def owned(directory: str, **options: Unpack[FileOptions]) -> Iterator[tuple[CheckpointManager[Any], AgentUser | None]]:
    """The library's own manager of the directory, and the user as which root acts meanwhile, if any."""
    with ExitStack() as stack:
        user: AgentUser | None = None
        try:
            user = stack.enter_context(acting_as_agent(directory))
            options["allow_insecure"] = True  # the agent decides that
            place = store_at(directory, read_only=options.get("read_only", False), owner=options.get("owner", ""))
            manager = stack.enter_context(CheckpointManager(place, ANY_KIND, **options))
        except (CheckpointError, OSError) as error:
            raise Blocked(_why_not(directory, error, user)) from error
        yield manager, user


class Copies(Protocol):
    """Changes the copies in quarantine."""

    def restore(self, copy: Copy) -> str: ...
    def delete(self, copy: Copy) -> None: ...


@contextmanager
def owned_copies(directory: str, owner: str) -> Iterator[Copies]:
    """The copies in the quarantine of a directory or an etcd:// prefix, with its lock."""
    if not directory.startswith(SCHEME):
        with owned(directory, owner=owner):
            yield quarantine
        return
    try:
        store = place_in(directory).open(owner=owner)
    except CheckpointError as error:
        raise Blocked(_why_not(directory, error, None)) from error
    with closing(store):
        yield CopiesInEtcd(store)


def refuse_if_held(directory: str) -> None:
    """Raises Blocked before the user is asked to confirm something that cannot be done."""
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
