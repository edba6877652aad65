"""How checkpoints are replaced in etcd.

A change is one etcd transaction, so every member that has it has all of it:

    compare  .lock                     created and last written by this owner, at the revisions it knows
    compare  key.json                  last written at the revision last seen, so the change is made once at most
    put      .previous-key             what key.json held, unless that was damaged
    put      key.json                  the commit

attempts.py sends it, and finds out what happened when no answer arrives.
"""

from __future__ import annotations

import errno
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from .._errors import DirectoryLocked
from .._store import Put, Replaces
from . import operations
from .attempts import Attempts, Trace, Unmade
from .client import Call, Client
from .faults import NoAnswer
from .layout import Layout
from .ownership import Hold
from .remembered import Remembered, Seen
from .wire import TXN

MAX_OPERATIONS = 128  # in one etcd transaction, etcd's default
CHANGES_AT_ONCE = 60  # in one piece of a batch: each takes two operations and a comparison
MAX_REQUEST_BYTES = 3 << 19  # 1.5 MiB: etcd's default
NAMES_BYTES = 16 << 10  # of a request with one change, beyond the checkpoint and its previous generation
PIECE_BYTES = 1 << 20  # in one piece of a batch
OVERHEAD_BYTES = 128  # of an operation or a comparison, beyond names and values; more than it ever needs
COMMON_BYTES = 4096  # of a request: the name of `.lock`, three times, and what etcd adds

Change = Put | str  # a checkpoint to write, or the key of one to remove


class _TooMuch(Exception):
    """Several changes that do not fit into one request together with their previous generations."""


class Commits:
    """All changes of one store."""

    def __init__(self, client: Client, layout: Layout, attempts: Attempts, timeout: float) -> None:
        self._client = client
        self._layout = layout
        self._attempts = attempts
        self._timeout = timeout
        self.remembered = Remembered()

    def run(self, puts: Sequence[Put], removals: Sequence[str]) -> Mapping[str, tuple[OSError, bool]]:
        """Make the changes, piece by piece. Returns the failures: the error of each key, and whether it is in doubt."""
        failures: dict[str, tuple[OSError, bool]] = {}
        made = False
        hopeless: OSError | None = None  # why the remaining pieces are not even tried
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
                # Earlier pieces are durable or have their own errors, so this one is reported per key as well.
                hopeless = OSError(errno.ENOLCK, str(lost))
                failures |= dict.fromkeys(map(key_of, piece), (hopeless, False))
        return failures

    def seen(self, call: Call, keys: Sequence[str]) -> dict[str, Seen]:
        """The values of these keys: from memory where known, else from etcd."""
        found = {key: seen for key in keys if (seen := self.remembered.get(key))}
        return found | self.read(call, [key for key in keys if key not in found])

    def read(self, call: Call, keys: Sequence[str]) -> dict[str, Seen]:
        """The values of these keys in etcd now; those of one page are from the same moment."""
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
        if change.replaces is Replaces.DAMAGED:
            return [made]
        if change.replaces is Replaces.ABSENT or not before.revision:
            return [operations.delete(previous), made]
        return [operations.put(previous, before.blob), made]

    def _pieces(self, changes: Sequence[Change]) -> Iterator[list[Change]]:
        """As many changes per request as etcd takes, unless their previous generations are much larger."""
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
        try:
            self._attempts.repeat(call, lambda hold: self._attempt(call, piece, hold))
        except BaseException:
            self.forget(piece)
            raise

    def _attempt(self, call: Call, piece: Sequence[Change], hold: Hold) -> bool:
        """True if the piece is made, False if it has to be built again from the current values."""
        before = self.seen(call, [key_of(change) for change in piece])
        compared = [operations.changed_at(self._layout.current(key), seen.revision) for key, seen in before.items()]
        steps = [step for change in piece for step in self.steps(change, before[key_of(change)])]
        if len(piece) > 1 and bytes_of([*compared, *steps]) > MAX_REQUEST_BYTES:
            raise _TooMuch
        revision = self._attempts.send(call, hold, compared, steps, self._trace(piece, before))
        if revision:
            self.remember(piece, revision)
        else:
            self.forget(piece)
        return revision is not None

    def _trace(self, piece: Sequence[Change], before: Mapping[str, Seen]) -> Trace:
        """Of the change that shows it best: any write, else the removal of something that exists."""
        for change in piece:
            if isinstance(change, Put):
                return Trace(self._layout.current(change.key), before[change.key].revision, change.blob)
        for change in piece:
            if revision := before[key_of(change)].revision:
                return Trace(self._layout.current(key_of(change)), revision)
        return Trace(None)


def key_of(change: Change) -> str:
    return change.key if isinstance(change, Put) else change


def bytes_of(parts: Sequence[Any]) -> int:
    """What a request with these comparisons and operations takes at most."""
    return COMMON_BYTES + sum(int(part.ByteSize()) + OVERHEAD_BYTES for part in parts)
