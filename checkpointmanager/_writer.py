"""From encoded data to a durable file: counts generations, and skips content that is unchanged.

What the writer remembers about a key it forgets before each attempt, and learns again from the file after a failure.
So a write in doubt can never be mistaken for one that happened.
"""

from __future__ import annotations

import errno
import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple

from xxhash import xxh3_128_digest

from ._batch import Changes, Committed
from ._changeguard import change_guard
from ._errors import (
    CheckpointError,
    CheckpointNotFound,
    CheckpointWriteFailed,
    TransactionFailed,
    UnstorableValue,
)
from ._events import Events
from ._format.envelope import MAX_GENERATION, Header, open_sealed, seal
from ._format.reason import Damaged, Reason, TooNew
from ._incumbents import Incumbents
from ._keylocks import KeyLocks
from ._metricssink import MetricsSink
from ._reader import Reader
from ._schema import Encoded
from ._store import Put, Remove, Replaces, Store
from ._unbroken import Unbroken

# By key: the new content (None: a removal), and the header of a good checkpoint that was just read.
Outcomes = dict[str, tuple[Encoded | None, Header | None]]


class Known(NamedTuple):
    """A checkpoint that this owner wrote durably. The digest is of its data alone."""

    header: Header
    digest: bytes
    identity: object = None  # the store's, of the file that was last seen to have these bytes; None: not yet seen

    def is_of(self, encoded: Encoded, digest: bytes) -> bool:
        """True for the same data and versions. Boot and durability are this owner's, so they are the same anyway."""
        versions = (self.header.version, self.header.readable_by)
        return digest == self.digest and versions == (encoded.version, encoded.readable_by)


class Writer:
    """All changes go through here, each inside `changing` its keys."""

    def __init__(
        self,
        store: Store,
        kind: str,
        reader: Reader[Any],
        boot: str,
        events: Events,
        *,
        metrics: MetricsSink | None = None,
    ) -> None:
        self._store = store
        self._kind = kind
        self._reader = reader
        self._incumbents = Incumbents(store, reader, events)
        self._boot = boot
        self._events = events
        self._metrics = metrics
        self._locks = KeyLocks()
        self._known: dict[str, Known] = {}  # each entry guarded by its key's lock

    def changing(self, *keys: str) -> Unbroken:
        """No other thread changes these keys in the block; events wait until the locks are released."""
        return Unbroken(change_guard(keys, self._events, self._store, self._locks, self._metrics))

    def write(self, key: str, encoded: Encoded, found: Header | None = None) -> tuple[Header, bool]:
        """Make a checkpoint durable; returns its header, and True if there was nothing to change.

        `found` is the header of a good checkpoint that the caller has just read.
        """
        after, put = self._prepare(key, encoded, found)
        if put is None:
            self._skip()
            return after.header, True
        self._commit_one(put)
        self._remember(key, after)
        return after.header, False

    def remove(self, key: str) -> None:
        self._commit_one(self._prepare_removal(key))

    def commit(self, changes: Changes) -> Committed:
        """A batch: afterwards exactly what is durable is remembered."""
        failures: dict[str, CheckpointError] = {}
        made: list[Put | Remove] = []
        written: dict[str, Known] = {}
        unchanged: set[str] = set()
        for key, encoded in changes.items():
            try:
                if encoded is None:
                    made.append(self._prepare_removal(key))
                    continue
                written[key], put = self._prepare(key, encoded)
                if put:
                    made.append(put)
                else:
                    unchanged.add(key)
                    self._skip()
            except CheckpointError as error:
                failures[key] = error
        failures |= self._commit(made)
        durable = {key: after for key, after in written.items() if key not in failures}
        for key, after in durable.items():
            self._remember(key, after)
        headers = {key: after.header for key, after in durable.items()}
        return Committed(headers, frozenset(unchanged), failures)

    def transact(self, outcomes: Outcomes) -> Committed:
        """All or nothing, or TransactionFailed."""
        made: list[Put | Remove] = []
        written: dict[str, Known] = {}
        unchanged: set[str] = set()
        for key, (encoded, found) in outcomes.items():
            try:
                if encoded is None:
                    made.append(self._prepare_removal(key))
                    continue
                written[key], put = self._prepare(key, encoded, found)
            except CheckpointError as error:
                raise TransactionFailed(key, self._store.path_of(key), error) from error
            if put:
                made.append(put)
            else:
                unchanged.add(key)
                self._skip()
        self._commit(made, together=True)
        for key, after in written.items():
            self._remember(key, after)
        return Committed({key: after.header for key, after in written.items()}, frozenset(unchanged), {})

    def replace_damaged(self, key: str, reason: Reason, blob: bytes) -> str:
        """Replace damaged bytes with `blob`, after copying them to quarantine; returns where the copy is."""
        kept = self._keep_damaged(key, reason)
        header, _ = open_sealed(blob, key)
        self._commit_one(Put(key, blob, header.generation, Replaces.DAMAGED))
        return kept

    def discard_damaged(self, key: str, reason: Reason) -> str:
        """Remove damaged bytes, after copying them to quarantine; returns where the copy is."""
        kept = self._keep_damaged(key, reason)
        self._commit_one(Remove(key, self._next_generation(key, self._reader.highest_generation(key))))
        return kept

    def _keep_damaged(self, key: str, reason: Reason) -> str:
        self.forget(key)
        self._incumbents.refuse_if_not_a_file(key, reason)
        return self._incumbents.quarantine(key, reason)

    def forget(self, key: str) -> None:
        """Let the next write learn from the file again. Always safe."""
        self._known.pop(key, None)

    def _prepare(self, key: str, encoded: Encoded, found: Header | None = None) -> tuple[Known, Put | None]:
        """What will be known after the write, and the write itself; None if the checkpoint has this content already."""
        digest = xxh3_128_digest(encoded.json)
        known = self._known.pop(key, None)
        lowest = known.header.generation if known else 0
        if known and found and found != known.header:
            known = None  # another program or a person has replaced the file
        if known and known.is_of(encoded, digest):
            known = known if found else self._seen(key, known, encoded)
            if known:
                self._known[key] = known
                return known, None
        if known:
            replaces, generation = Replaces.WHOLE, lowest
        else:
            lowest = max(lowest, self._store.highest_generation(key))
            replaces, generation = self._incumbents.before_write(key, lowest, found)
        header = Header(
            kind=self._kind,
            version=encoded.version,
            readable_by=encoded.readable_by,
            key=key,
            generation=self._next_generation(key, generation),
            boot=self._boot,
            written=datetime.now(UTC),
        )
        blob = seal(header, encoded.json)
        if len(blob) > self._store.max_bytes:
            raise UnstorableValue("$", f"takes {len(blob)} bytes, over the limit of {self._store.max_bytes}")
        return Known(header, digest), Put(key, blob, header.generation, replaces)

    def _prepare_removal(self, key: str) -> Remove:
        """Damaged bytes have been copied."""
        known = self._known.pop(key, None)
        highest = known.header.generation if known else self._incumbents.before_removal(key)
        return Remove(key, self._next_generation(key, max(highest, self._store.highest_generation(key))))

    def _next_generation(self, key: str, generation: int) -> int:
        if generation >= MAX_GENERATION:
            error = OSError(errno.EOVERFLOW, f"its generation is {generation}, after which there is none")
            raise CheckpointWriteFailed(key, self._store.path_of(key), error, in_doubt=False)
        return generation + 1

    def _commit_one(self, change: Put | Remove) -> None:
        for failure in self._commit([change]).values():
            raise failure

    def _commit(
        self, changes: Sequence[Put | Remove], *, together: bool = False
    ) -> Mapping[str, CheckpointWriteFailed]:
        started = time.perf_counter()
        try:
            failures = self._store.commit(changes, together=together)
        except TransactionFailed as error:
            self._measure(changes, dict.fromkeys((change.key for change in changes), error), started)
            raise
        self._measure(changes, failures, started)
        return failures

    def _measure(
        self, changes: Sequence[Put | Remove], failures: Mapping[str, CheckpointWriteFailed], started: float
    ) -> None:
        if self._metrics:
            self._metrics.committed(self._store.path, changes, failures, time.perf_counter() - started)

    def _skip(self) -> None:
        if self._metrics:
            self._metrics.unchanged(self._store.path)

    def _remember(self, key: str, known: Known) -> None:
        if self._store.exclusive:  # else another process may write the key at any time
            self._known[key] = known

    def _seen(self, key: str, known: Known, encoded: Encoded) -> Known | None:
        """`known` with the identity of the file, if that still has the known bytes: someone may have changed it.

        The first time the bytes are read; later a look at the identity is enough.
        """
        identity = self._store.identity(key)
        if identity is None or known.identity is not None:
            return known if identity is not None and identity == known.identity else None
        try:
            header, data = open_sealed(self._store.read(key), key)
            is_there = header == known.header and xxh3_128_digest(data) == known.digest
        except (CheckpointNotFound, Damaged, TooNew):
            return None
        return known._replace(identity=identity) if is_there else None
