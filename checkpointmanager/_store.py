"""What the manager needs from whatever keeps the bytes. FileStore and MemoryStore implement it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from enum import Enum, auto
from typing import NamedTuple, Protocol, runtime_checkable

from ._errors import CheckpointWriteFailed
from ._format.reason import Reason


class Current(Enum):
    """What stands under a key's name just before it is written, as the manager found it."""

    ABSENT = auto()  # nothing: a previous generation left behind belongs to a removed checkpoint
    FOUND = auto()  # a good checkpoint, from before this owner: it becomes the previous generation
    OURS = auto()  # a good checkpoint that this owner wrote: the same, and no trace of a crash is possible
    DAMAGED = auto()  # bytes that nobody can trust: the previous generation stays what it is


class Put(NamedTuple):
    """One checkpoint to be written."""

    key: str  # checked by the caller
    blob: bytes  # the whole file
    current: Current  # what is there now
    generation: int = 0  # of the blob; a transaction needs it

    def __repr__(self) -> str:
        return f"Put({self.key!r}, {len(self.blob)} bytes, {self.current.name})"  # never data


@runtime_checkable
class Store(Protocol):
    """Bytes under a key, each replaced as a whole, with the generation before kept beside it.

    Keys have been checked by the caller. All calls are safe from many threads.
    """

    path: str  # names the store in messages
    max_bytes: int  # more than that is neither written nor read
    exclusive: bool  # True: nobody else can write while it is open, so what was learned stays true

    def path_of(self, key: str) -> str:
        """Names one checkpoint in messages."""
        ...

    def keys(self) -> list[str]:
        """Every key, in no order."""
        ...

    def exists(self, key: str) -> bool:
        """True if anything stands under the key's name, damaged or not."""
        ...

    def read(self, key: str, *, previous: bool = False) -> bytes:
        """The bytes, or CheckpointNotFound, or Damaged: unreadable, too large, not a file."""
        ...

    def identity(self, key: str) -> object:
        """Equal to what it was before as long as nobody has changed the bytes since; None if there are none."""
        ...

    def expect(self, keys: Sequence[str]) -> None:
        """A hint that these will be read soon, in this order, by this thread. Never raises for what is not there.

        An empty sequence ends it: the next read of anything must be answered anew.
        """
        ...

    def writing(self) -> AbstractContextManager[None]:
        """Hold this from learning what is there until it is replaced. Refuses when writing is not allowed."""
        ...

    def confirm(self, keys: Sequence[str] = ()) -> None:
        """Raise unless this is still the owner, and these keys may be changed.

        Asked before each change, when nothing is waited for any more and nothing has been read yet. If an earlier
        transaction of these keys is committed and not finished, it is finished here.
        """
        ...

    def commit(self, puts: Sequence[Put], removals: Sequence[str] = ()) -> dict[str, CheckpointWriteFailed]:
        """Make the changes durable and return those that failed. Each is atomic, all together are not."""
        ...

    def transact(self, puts: Sequence[Put], removals: Mapping[str, int]) -> None:
        """Make all the changes durable together or none of them; TransactionFailed says which.

        `removals` has the generation of each key that goes: one above all that were seen of it. Readers may see
        the changes one after the other. Called while holding all the keys; one at a time is made.
        """
        ...

    def highest_generation(self, key: str) -> int:
        """Of the generations of this key that a crash may bring back, beside what can be read; 0 if there are none."""
        ...

    def quarantine(self, key: str, reason: Reason) -> str:
        """Keep a durable copy of what stands under the name now, and return where. Raises OSError.

        What cannot be copied, such as a folder, may stay where it is until it is replaced or removed.
        What is kept already is not kept again. The oldest copies of a key may go when there are many.
        """
        ...

    def quarantined(self) -> Mapping[str, Sequence[str]]:
        """Where the copies of each key are kept, oldest first; nothing of a key that has none."""
        ...

    def close(self) -> None:
        """Give the store back. May be called twice."""
        ...
