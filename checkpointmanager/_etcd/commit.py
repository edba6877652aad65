"""How checkpoints are replaced in etcd.

A request is one etcd transaction, so every member and every reader sees all of it or nothing:

    compare  .lock                     created and last written by this owner, at the revisions it knows, on its lease
    compare  key.json                  last written at the revision last seen, so the change is made once at most
    put      .previous-key             what key.json held, unless that was damaged
    put      key.json                  the commit

Changes that belong together are one request, all others as many as needed. A request of more keys than can be compared
reads them first and compares one, so it is made once at most as well. The owner is the only writer, so that differs
only for changes by hand. attempts.py sends a request, and finds out what happened when no answer arrives.
"""

from __future__ import annotations

import errno
import threading
from collections import OrderedDict, deque
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from .._errors import DirectoryLocked
from .._store import Put, Remove, Replaces
from . import wire
from .attempts import Attempts, NotAcknowledged, Trace
from .client import Client, StoreCall
from .errors import NoAnswer
from .layout import Layout
from .ownership import Hold
from .wire import TXN

# etcd takes 128 operations and as many comparisons; in a nested transaction, 128 less those of the one around it.
MAX_OPERATIONS = 128
LOCK_COMPARISONS = 3
MAX_COMPARED = 120  # keys
MAX_NESTED = MAX_OPERATIONS // 2  # operations in each nested transaction, and fewer of these
MAX_TOGETHER = MAX_NESTED * (MAX_NESTED - 2) // 2  # changes in one request: each takes two operations
CHANGES_AT_ONCE = 60  # in one request, if they do not belong together
MAX_REQUEST_BYTES = 3 << 19  # 1.5 MiB: etcd's default
NAMES_BYTES = 16 << 10  # of a request with one change, beyond the checkpoint and its previous generation
PIECE_BYTES = 1 << 20  # in one request, if they do not belong together
OVERHEAD_BYTES = 128  # of an operation or a comparison, beyond names and values; more than it ever needs
COMMON_BYTES = 4096  # of a request: the name of `.lock`, four times, and what etcd adds
MAX_SEEN_BYTES = 16 << 20  # of the values that a store remembers
SEEN_ENTRY_BYTES = 200  # beyond the value: a key that does not exist takes room as well

Change = Put | Remove


class Seen(NamedTuple):
    """A value, and the revision that wrote it; 0 if there was none."""

    revision: int
    blob: bytes = b""


class LastSeen:
    """The last seen value of each key, so that a write need not read first. Never trusted: etcd compares it."""

    def __init__(self) -> None:
        self._lock = threading.RLock()  # a signal handler may run while its thread holds it
        self._seen: OrderedDict[str, Seen] = OrderedDict()
        self._bytes = 0

    def get(self, key: str) -> Seen | None:
        return self._seen.get(key)

    def keep(self, key: str, seen: Seen) -> None:
        with self._lock:
            self.forget(key)
            self._seen[key] = seen
            self._bytes += SEEN_ENTRY_BYTES + len(seen.blob)
            while self._bytes > MAX_SEEN_BYTES:
                _, oldest = self._seen.popitem(last=False)
                self._bytes -= SEEN_ENTRY_BYTES + len(oldest.blob)

    def forget(self, key: str) -> None:
        with self._lock:
            gone = self._seen.pop(key, None)
            self._bytes -= SEEN_ENTRY_BYTES + len(gone.blob) if gone else 0


class Commits:
    """All changes of one store."""

    def __init__(self, client: Client, layout: Layout, attempts: Attempts, max_request_bytes: int) -> None:
        self._client = client
        self._layout = layout
        self._attempts = attempts
        self._max_request_bytes = max_request_bytes
        self.last_seen = LastSeen()

    def make(self, call: StoreCall, changes: Sequence[Change], *, together: bool) -> Mapping[str, NotAcknowledged]:
        """Make the changes and return the failures. With together=True it is all or none, and a failure is raised.

        Also raises WentBack, and DirectoryLocked if nothing was made.
        """
        if not together:
            return self._make_apart(call, changes)
        try:
            self._make(call, changes)
        except _TooMuch as much:
            what = (
                f"the transaction has {len(changes)} changes that take {much.size} bytes with their previous "
                f"generations; etcd takes {MAX_TOGETHER} changes and {self._max_request_bytes} bytes at once: "
                "make a smaller one"
            )
            raise NotAcknowledged(OSError(errno.EMSGSIZE, what), in_doubt=False) from None
        return {}

    def read(
        self, call: StoreCall, keys: Sequence[str], *, revision: int = 0, previous: bool = False
    ) -> dict[str, Seen]:
        """The values of these keys at that revision; by default now, and those of one page at the same moment."""
        name_of = self._layout.previous if previous else self._layout.current
        known = {} if previous or revision else {key: self.last_seen.get(key) for key in keys}
        found: dict[str, Seen] = {}
        for start in range(0, len(keys), MAX_OPERATIONS):
            page = keys[start : start + MAX_OPERATIONS]
            request = wire.txn([], [wire.get(name_of(key), revision) for key in page])
            for key, response in zip(page, self._client.ask(call, TXN, request).responses, strict=True):
                kvs = response.response_range.kvs
                found[key] = Seen(kvs[0].mod_revision, kvs[0].value) if kvs else Seen(0)
                self.check(known.get(key), found[key])
        return found

    def check(self, known: Seen | None, now: Seen) -> None:
        """A checkpoint never gets older, unless etcd lost state. `known` was seen before `now` was asked for."""
        if known and 0 < now.revision < known.revision:
            self._client.progress.lost("etcd has an older checkpoint than before")

    def _make_apart(self, call: StoreCall, changes: Sequence[Change]) -> Mapping[str, NotAcknowledged]:
        """In pieces of as many changes as etcd takes at once."""
        failures: dict[str, NotAcknowledged] = {}
        made = False
        hopeless: OSError | None = None  # why the remaining pieces are not even tried
        pieces = deque(_pieces(changes))
        while pieces:
            piece = pieces.popleft()
            try:
                if hopeless:
                    raise NotAcknowledged(hopeless, in_doubt=False)
                self._make(call.part(), piece)
                made = True
            except _TooMuch:
                half = len(piece) // 2
                pieces.extendleft((piece[half:], piece[:half]))
            except NotAcknowledged as failure:
                failures |= dict.fromkeys((change.key for change in piece), failure)
                hopeless = hopeless or (failure.error if isinstance(failure.error, NoAnswer) else None)
            except DirectoryLocked as lost:
                if not made and not failures:
                    raise
                # Earlier pieces are durable or have their own errors, so this one is reported per key as well.
                hopeless = OSError(errno.ENOLCK, str(lost))
                pieces.appendleft(piece)
        return failures

    def _make(self, call: StoreCall, changes: Sequence[Change]) -> None:
        try:
            self._attempts.repeat(call, lambda hold: self._attempt(call, changes, hold))
        except BaseException:
            self._remember(changes, 0)
            raise

    def _attempt(self, call: StoreCall, changes: Sequence[Change], hold: Hold) -> bool:
        """True if the changes are made, False if the request has to be built again from the current values."""
        before = self._before(call, [change.key for change in changes])
        trace = self._trace(changes, before)
        seen = {self._layout.current(key): value.revision for key, value in before.items()}
        if len(seen) > MAX_COMPARED:
            seen = {trace.name: trace.before} if trace.name else {}
        compared = [wire.changed_at(name, revision) for name, revision in seen.items()]
        steps = [step for change in changes for step in self._steps(change, before[change.key])]
        size = COMMON_BYTES + sum(int(part.ByteSize()) + OVERHEAD_BYTES for part in [*compared, *steps])
        if len(changes) > MAX_TOGETHER or (len(changes) > 1 and size > self._max_request_bytes):
            raise _TooMuch(size)
        if len(steps) > MAX_OPERATIONS:
            steps = wire.nested(steps, min(MAX_NESTED, MAX_OPERATIONS - LOCK_COMPARISONS - len(compared)))
        revision = self._attempts.send(call, hold, compared, steps, trace)
        if revision is None:  # what it compares has changed: by hand, or because etcd lost state
            for key, now in self.read(call, list(before)).items():
                self.last_seen.keep(key, now)
            return False
        self._remember(changes, revision)
        return True

    def _before(self, call: StoreCall, keys: Sequence[str]) -> dict[str, Seen]:
        """The values that become previous generations: from memory only if the request compares them."""
        if len(keys) > MAX_COMPARED:
            return self.read(call, keys)
        found = {key: seen for key in keys if (seen := self.last_seen.get(key))}
        return found | self.read(call, [key for key in keys if key not in found])

    def _steps(self, change: Change, before: Seen) -> list[Any]:
        """The operations that make one change."""
        current, previous = self._layout.current(change.key), self._layout.previous(change.key)
        if isinstance(change, Remove):
            return [wire.delete(current), wire.delete(previous)]
        made = wire.put(current, change.blob)
        if change.replaces is Replaces.DAMAGED:
            return [made]
        if change.replaces is Replaces.ABSENT or not before.revision:
            return [wire.delete(previous), made]
        return [wire.put(previous, before.blob), made]

    def _trace(self, changes: Sequence[Change], before: Mapping[str, Seen]) -> Trace:
        """Of the change that shows it best: any write, else the removal of something that exists."""
        for change in changes:
            if isinstance(change, Put):
                return Trace(self._layout.current(change.key), before[change.key].revision, change.blob)
        for change in changes:
            if revision := before[change.key].revision:
                return Trace(self._layout.current(change.key), revision)
        return Trace(None)

    def _remember(self, changes: Sequence[Change], revision: int) -> None:
        """What the changes left, if this revision made them; 0: it is not known."""
        for change in changes:
            if revision:
                self.last_seen.keep(change.key, Seen(revision, change.blob) if isinstance(change, Put) else Seen(0))
            else:
                self.last_seen.forget(change.key)


class _TooMuch(Exception):
    """Several changes that do not fit into one request together with their previous generations."""

    def __init__(self, size: int) -> None:
        super().__init__(size)
        self.size = size


def _pieces(changes: Sequence[Change]) -> Iterator[list[Change]]:
    """As many changes per request as etcd takes, unless their previous generations are much larger."""
    piece: list[Change] = []
    keys: set[str] = set()
    size = 0
    for change in changes:
        cost = 2 * len(change.blob) if isinstance(change, Put) else 0
        if piece and (len(piece) == CHANGES_AT_ONCE or size + cost > PIECE_BYTES or change.key in keys):
            yield piece
            piece, keys, size = [], set(), 0
        piece.append(change)
        keys.add(change.key)
        size += cost
    if piece:
        yield piece
