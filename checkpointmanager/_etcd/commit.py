"""How checkpoints are replaced in etcd.

A change is one etcd transaction, so that all members that have it have all of it:

    compare  .lock                     created, and last written, when this owner did: else it is too late
    compare  key.json                  last written when it was last seen: so this change is made once at most
    put      .previous-key             what key.json held, unless that was damaged
    put      key.json                  the commit

When an answer does not come, the same request is sent again, to another member. If the first one was carried out after
all, the second finds that key.json was written since, and reads that the bytes are these: made, once. Only when time
is up before anything is known the change is in doubt, and ownership.py sees to it that it is dead or done before
the next one is made.
"""

from __future__ import annotations

import errno
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from .._errors import CheckpointWriteFailed, DirectoryLocked
from .._store import Current, Put
from . import operations
from .client import Call, Client
from .faults import Compacted, NoAnswer, Refused
from .layout import Layout
from .ownership import Hold, Ownership
from .remembered import Remembered, Seen
from .wire import RANGE, TXN

MAX_OPERATIONS = 128  # of one etcd transaction, by default
CHANGES_AT_ONCE = 60  # of a batch: each takes two operations, and a comparison
MAX_REQUEST_BYTES = 3 << 19  # 1.5 MiB: etcd's default
PIECE_BYTES = 1 << 20  # of a batch
OVERHEAD_BYTES = 128  # of a change, beside its names and values: more than what is needed

Change = Put | str  # a checkpoint to be written, or the key of one to be removed


class Unmade(Exception):
    """A change was not acknowledged."""

    def __init__(self, error: OSError, *, in_doubt: bool) -> None:
        super().__init__(str(error))
        self.error = error
        self.in_doubt = in_doubt


class _TooMuch(Exception):
    """Several changes that do not fit into one request, because of the previous generations that go with them."""


class Commits:
    """All changes of one store."""

    def __init__(self, client: Client, layout: Layout, ownership: Ownership, timeout: float) -> None:
        self._client = client
        self._layout = layout
        self._ownership = ownership
        self._timeout = timeout
        self.remembered = Remembered()

    def run(self, puts: Sequence[Put], removals: Sequence[str]) -> Mapping[str, tuple[OSError, bool]]:
        """Make the changes, piece by piece; what failed, each with its error and whether it is in doubt."""
        failures: dict[str, tuple[OSError, bool]] = {}
        made = False
        hopeless: OSError | None = None  # why the rest is not even tried
        pieces = deque(self._pieces([*puts, *dict.fromkeys(removals)]))
        while pieces:
            piece = pieces.popleft()
            try:
                if hopeless:
                    raise Unmade(hopeless, in_doubt=False)
                self._make(piece)
                made = True
            except _TooMuch:
                half = len(piece) // 2
                pieces.extendleft((piece[half:], piece[:half]))
            except Unmade as unmade:
                failures |= dict.fromkeys(map(key_of, piece), (unmade.error, unmade.in_doubt))
                hopeless = hopeless or (unmade.error if isinstance(unmade.error, NoAnswer) else None)
            except DirectoryLocked as lost:
                if not made and not failures:
                    raise
                # What came before is durable, or has its own error: this one is reported in the same way.
                hopeless = OSError(errno.ENOLCK, str(lost))
                failures |= dict.fromkeys(map(key_of, piece), (hopeless, False))
        return failures

    def seen(self, call: Call, keys: Sequence[str]) -> dict[str, Seen]:
        """What these hold, as far as it is remembered, else as etcd says."""
        found = {key: seen for key in keys if (seen := self.remembered.get(key))}
        return found | self.read(call, [key for key in keys if key not in found])

    def read(self, call: Call, keys: Sequence[str]) -> dict[str, Seen]:
        """What these hold now, all of one page at the same moment."""
        found: dict[str, Seen] = {}
        for start in range(0, len(keys), MAX_OPERATIONS):
            page = keys[start : start + MAX_OPERATIONS]
            request = operations.txn([], [operations.get(self._layout.current(key)) for key in page])
            for key, response in zip(page, self._client.ask(call, TXN, request).responses, strict=True):
                kvs = response.response_range.kvs
                found[key] = Seen(kvs[0].mod_revision, kvs[0].value) if kvs else Seen(0)
        return found

    def remember(self, changes: Sequence[Change], revision: int) -> None:
        for change in changes:
            after = Seen(revision, change.blob) if isinstance(change, Put) else Seen(0)
            self.remembered.keep(key_of(change), after)

    def forget(self, changes: Sequence[Change]) -> None:
        for change in changes:
            self.remembered.forget(key_of(change))

    def steps(self, change: Change, before: Seen) -> list[Any]:
        """The operations that make one change."""
        if isinstance(change, str):
            return [operations.delete(self._layout.current(change)), operations.delete(self._layout.previous(change))]
        made = operations.put(self._layout.current(change.key), change.blob)
        previous = self._layout.previous(change.key)
        if change.current is Current.DAMAGED:
            return [made]
        if change.current is Current.ABSENT or not before.revision:
            return [operations.delete(previous), made]
        return [operations.put(previous, before.blob), made]

    def _pieces(self, changes: Sequence[Change]) -> Iterator[list[Change]]:
        """As many changes at once as etcd takes, unless their previous generations are much larger."""
        piece: list[Change] = []
        keys: set[str] = set()
        size = 0
        for change in changes:
            key = key_of(change)
            cost = 2 * len(change.blob) if isinstance(change, Put) else 0
            if piece and (len(piece) == CHANGES_AT_ONCE or size + cost > PIECE_BYTES or key in keys):
                yield piece
                piece, keys, size = [], set(), 0
            piece.append(change)
            keys.add(key)
            size += cost
        if piece:
            yield piece

    def _make(self, piece: Sequence[Change]) -> None:
        call = Call(self._timeout)
        hold = self._ownership.hold
        try:
            self._ownership.check(call)
            hold = self._ownership.hold
            while not self._attempt(call, piece, hold):
                hold = self._ownership.hold
        except BaseException as error:
            self.forget(piece)
            if call.unsure or not isinstance(error, Exception):  # a signal handler that raises leaves it open as well
                self._ownership.doubt(hold)
            if isinstance(error, Refused | NoAnswer):
                raise Unmade(error, in_doubt=call.unsure) from error
            if isinstance(error, CheckpointWriteFailed):
                raise Unmade(error, in_doubt=False) from error
            raise

    def _attempt(self, call: Call, piece: Sequence[Change], hold: Hold) -> bool:
        """True if the piece is made, False if it has to be tried again from what is there now."""
        before = self.seen(call, [key_of(change) for change in piece])
        compared = [operations.changed_at(self._layout.current(key), seen.revision) for key, seen in before.items()]
        steps = [step for change in piece for step in self.steps(change, before[key_of(change)])]
        if len(piece) > 1 and sum(step.ByteSize() + OVERHEAD_BYTES for step in steps) > MAX_REQUEST_BYTES:
            raise _TooMuch
        request = operations.txn(
            [*self._ownership.comparisons(hold), *compared], steps, [operations.get(self._layout.lock)]
        )
        witness = _Witness.of(piece, before)
        try:
            reply = self._client.ask(call, TXN, request, changing=True)
        except Refused:
            if call.unsure and self._was_made(call, witness):
                self.forget(piece)
                return True
            raise
        if reply.succeeded:
            self.remember(piece, reply.header.revision)
            return True
        self.forget(piece)
        return self._settle(call, witness, reply)

    def _settle(self, call: Call, witness: _Witness, reply: Any) -> bool:
        """The comparison failed, so nothing of this attempt can happen any more. Did an earlier try come through?"""
        unsure, call.unsure = call.unsure, False
        lock = reply.responses[0].response_range.kvs
        try:
            self._ownership.learn(lock)
        except DirectoryLocked as lost:
            if not unsure:
                raise
            # Another owner may have written since: look at the last moment before it came.
            then = lock[0].create_revision - 1 if lock else reply.header.revision
            try:
                made = self._was_made(call, witness, then)
            except Compacted:
                made = None
            if made is None:
                raise Unmade(OSError(errno.ENOLCK, str(lost)), in_doubt=True) from lost
            if not made:
                raise
            return True
        return unsure and self._was_made(call, witness) is True

    def _was_made(self, call: Call, witness: _Witness, revision: int = 0) -> bool | None:
        """None if somebody else has changed it, so that nobody knows."""
        if witness.key is None:
            return True
        name = self._layout.current(witness.key)
        found = self._client.ask(call, RANGE, RANGE.request(key=name, revision=revision)).kvs
        now = Seen(found[0].mod_revision, found[0].value) if found else Seen(0)
        if now.revision == witness.before:
            return False
        is_there = not now.revision if witness.blob is None else now.revision and now.blob == witness.blob
        return True if is_there else None


class _Witness(NamedTuple):
    """One change of a piece, by which it can be told whether all of them were made."""

    key: str | None  # None: there is nothing to make, only removals of what is not there
    before: int = 0
    blob: bytes | None = None

    @classmethod
    def of(cls, piece: Sequence[Change], before: Mapping[str, Seen]) -> _Witness:
        for change in piece:
            if isinstance(change, Put):
                return cls(change.key, before[change.key].revision, change.blob)
        for change in piece:
            if before[key_of(change)].revision:
                return cls(key_of(change), before[key_of(change)].revision)
        return cls(None)


def key_of(change: Change) -> str:
    return change.key if isinstance(change, Put) else change
