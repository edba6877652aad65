"""What the manager needs from whatever keeps the bytes. FileStore, MemoryStore and EtcdStore implement it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from enum import Enum, auto
from typing import NamedTuple, Protocol, runtime_checkable

from ._errors import CheckpointWriteFailed


class Replaces(Enum):
    """What a key's name holds just before it is written, as the manager found it."""

    ABSENT = auto()  # nothing: a previous generation left behind belongs to a removed checkpoint
    WHOLE = auto()  # a good checkpoint, which becomes the previous generation
    DAMAGED = auto()  # bytes that cannot be trusted: the previous generation stays as it is


class Put(NamedTuple):
    """One checkpoint to be written."""

    key: str  # checked by the caller
    blob: bytes  # the whole file: a sealed checkpoint of this key and generation
    generation: int  # of the blob
    replaces: Replaces  # what is there now

    def __repr__(self) -> str:
        return f"Put({self.key!r}, generation {self.generation}, {len(self.blob)} bytes, {self.replaces.name})"


class Remove(NamedTuple):
    """One checkpoint to be removed. The generation is above every generation seen of the key."""

    key: str  # checked by the caller
    generation: int  # of the removal


@runtime_checkable
class Store(Protocol):
    """Keeps bytes by key. Each write replaces all bytes of a key, and keeps the previous generation beside them.

    The caller has checked the keys. All calls are thread-safe.
    """

    path: str  # names the store in messages
    max_bytes: int  # larger checkpoints are neither written nor read
    exclusive: bool  # True if nobody else can write while it is open, so what was read stays true

    def path_of(self, key: str) -> str:
        """Names one checkpoint in messages."""
        ...

    def keys(self) -> list[str]:
        """Every key, in no order."""
        ...

    def exists(self, key: str) -> bool:
        """True if the key's name holds anything, damaged or not."""
        ...

    def read(self, key: str, *, previous: bool = False) -> bytes:
        """The bytes. Raises CheckpointNotFound, or Damaged: unreadable, too large, not a file.

        DirectoryUnusable is about the whole store, and says nothing about the key.
        """
        ...

    def prefetch(self, keys: Sequence[str]) -> None:
        """A hint that this thread will soon read these keys, in this order. Never raises for an absent key.

        An empty sequence ends the hint: later reads must not return what was fetched before.
        """
        ...

    def writing(self) -> AbstractContextManager[None]:
        """Hold this from the read of the current content until it is replaced. Raises if writing is not allowed."""
        ...

    def check_owner(self, keys: Sequence[str] = ()) -> None:
        """Raise unless this is still the owner and these keys may be changed.

        Called before each change, once all locks are held and before anything is read. What an earlier change of
        these keys left unfinished is finished, and a doubt about it resolved, when this returns.
        """
        ...

    def commit(self, changes: Sequence[Put | Remove], *, together: bool = False) -> Mapping[str, CheckpointWriteFailed]:
        """Make the changes durable, and return the failures by key.

        Each change is atomic. With `together` all of them are made or none, and a failure raises TransactionFailed.
        Readers may see the changes one after another.
        """
        ...

    def highest_generation(self, key: str) -> int:
        """The highest generation of this key that a crash may bring back, beyond what can be read; 0 if none can."""
        ...

    def quarantine(self, key: str, reason: str) -> str:
        """Keep a durable copy of what the name holds now, and return its path. Raises OSError.

        `reason` is a Reason, or "retired" for a whole checkpoint that is about to be removed.
        Bytes that are already kept are not copied again. When a key has many copies, the oldest may be deleted.
        """
        ...

    def quarantined(self) -> Mapping[str, Sequence[str]]:
        """The paths of the copies of each key, oldest first; keys without copies are left out."""
        ...

    def close(self) -> None:
        """Release the store. May be called twice."""
        ...


def is_store(thing: object) -> bool:
    """True if it has everything that Store declares. Since Python 3.12, isinstance overlooks names from __getattr__."""
    declared = {*vars(Store), *Store.__annotations__}
    return all(hasattr(thing, name) for name in declared if not name.startswith("_"))
