"""The Store on etcd: each operation of a manager in as few requests as possible."""

from __future__ import annotations

import weakref
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager

from .._errors import CheckpointNotFound, CheckpointWriteFailed, TransactionFailed
from .._filestore.ownership import ReadOnly
from .._locks import CallGate, Unbroken
from .._options import check_options
from .._store import Put, Remove
from ..format import Damaged, Reason
from .attempts import Attempts, NotAcknowledged
from .client import Client, StoreCall
from .commit import MAX_REQUEST_BYTES, NAMES_BYTES, Commits, Seen
from .connections import Credentials, Path
from .errors import EtcdUnavailable, EtcdWentBack, Failed, WentBack
from .layout import Layout, after_all, names, values
from .ownership import Ownership
from .quarantine import Quarantine
from .readahead import ChangeReads, Pages, ReadAhead
from .wire import RANGE

GRACE = 5.0  # seconds after its time to live within which etcd surely notices that a lease has expired
MAX_SECONDS = 86_400.0  # for ttl and timeout: a day is longer than anyone waits
MAX_BYTES = (MAX_REQUEST_BYTES - NAMES_BYTES) // 2  # 760 KiB: with its previous generation it fits into one request


class EtcdStore:
    """Checkpoints below a prefix in etcd, for a CheckpointManager or a CheckpointCache in place of a directory.

        store = EtcdStore(["http://127.0.0.1:2379"], "/agents/node-7", ttl=15)
        with CheckpointManager(store, LEASES) as manager: ...

    It owns the prefix until it is closed; opening a second one raises DirectoryLocked. Once another owner has taken
    over, etcd itself refuses every change, which raises DirectoryLocked as well; reads go on.

    endpoints       URLs of the members, all http or all https; if one fails, the next one is used
    ttl             seconds until the lock of an owner that has died or is cut off becomes free; at most a day
    timeout         seconds that any call may take before it fails or is in doubt, a batch as a whole; at most a day
    lock_timeout    seconds to wait for the lock; by default, until the lock of a dead owner has expired. A standby that
                    waits without a limit passes math.inf
    owner           a label shown to others that find the prefix locked
    read_only       take no lock and refuse to write
    max_bytes       the limit for one checkpoint. More than 760 KiB needs servers with a larger --max-request-bytes
    ca, cert, key   PEM files: the authority to trust, and the client certificate. Read again when a request fails
                    and they have been replaced
    user, password  where authentication is switched on
    password_file   instead of password: a file that is read at every login, so that the password may change
    """

    def __init__(
        self,
        endpoints: Sequence[str],
        prefix: str,
        *,
        ttl: float = 15.0,
        timeout: float = 5.0,
        lock_timeout: float | None = None,
        owner: str = "",
        read_only: bool = False,
        max_bytes: int = MAX_BYTES,
        ca: Path | None = None,
        cert: Path | None = None,
        key: Path | None = None,
        user: str = "",
        password: str = "",
        password_file: Path | None = None,
    ) -> None:
        check_options({"lock_timeout": lock_timeout, "owner": owner, "read_only": read_only, "max_bytes": max_bytes})
        _check_seconds(ttl=ttl, timeout=timeout)
        self._layout = Layout(prefix)
        self._client = Client(endpoints, Credentials(ca, cert, key, user, password, password_file))
        self.path = f"etcd://{','.join(self._client.addresses)}{self._layout.prefix}"
        self.max_bytes = max_bytes
        self.exclusive = not read_only
        self._timeout = timeout
        self._gate = CallGate(self.path)
        self._ahead = ReadAhead()
        owning = Ownership(self._client, self._layout, self.path, owner=owner, ttl=ttl, timeout=timeout)
        self._ownership = owning
        attempts = Attempts(self._client, owning)
        max_request_bytes = max(MAX_REQUEST_BYTES, 2 * max_bytes + NAMES_BYTES)
        self._commits = Commits(self._client, self._layout, attempts, max_request_bytes)
        self._quarantine = Quarantine(self._client, self._layout, owning)
        if read_only:
            return
        try:
            with self._calling():
                owning.take(ttl + GRACE if lock_timeout is None else float(lock_timeout))
        except BaseException:
            self.close()
            raise
        assert owning.lease
        weakref.finalize(self, owning.lease.stop)  # if it is dropped without close(), its lease expires

    def path_of(self, key: str) -> str:
        return f"etcd://{','.join(self._client.addresses)}{self._layout.current(key).decode()}"

    def keys(self) -> list[str]:
        with self._gate, self._calling() as call:
            found, revision = names(self._client, call, *self._layout.checkpoints)
        keys = [key for kv in found if (key := self._layout.key_of(kv.key)) is not None]
        self._ahead.listed = (tuple(keys), revision)
        return keys

    def exists(self, key: str) -> bool:
        with self._gate, self._calling() as call:
            return bool(self._client.ask(call, RANGE, RANGE.request(key=self._layout.current(key), keys_only=True)).kvs)

    def read(self, key: str, *, previous: bool = False) -> bytes:
        with self._gate, self._calling() as call:
            seen = self._read_ahead(call, key, previous=previous)
            if seen is None:
                known = None if previous else self._commits.last_seen.get(key)
                name = self._layout.previous(key) if previous else self._layout.current(key)
                found = self._client.ask(call, RANGE, RANGE.request(key=name)).kvs
                seen = Seen(found[0].mod_revision, found[0].value) if found else Seen(0)
                self._commits.check(known, seen)
        if not previous:
            self._commits.last_seen.keep(key, seen)
        if not seen.revision:
            raise CheckpointNotFound(key, self.path_of(key))
        if len(seen.blob) > self.max_bytes:
            detail = f"{len(seen.blob)} bytes, over the limit of max_bytes={self.max_bytes}"
            raise Damaged(Reason.TOO_LARGE, detail)
        return seen.blob

    def prefetch(self, keys: Sequence[str]) -> None:
        """From now on this thread reads what keys() listed as of that moment, 128 at once; an empty list ends it."""
        self._ahead.load = (self._ahead.load or Pages(*self._ahead.listed)) if keys else None

    def writing(self) -> AbstractContextManager[None]:
        return Unbroken(self._changing()) if self.exclusive else ReadOnly(self.path).writing()

    def check_owner(self, keys: Sequence[str] = ()) -> None:
        self._gate.check()
        if self._ahead.change and len(keys) > 1:
            self._ahead.change.current.add(keys)
        with self._calling() as call:
            self._ownership.check(call)

    def commit(self, changes: Sequence[Put | Remove], *, together: bool = False) -> Mapping[str, CheckpointWriteFailed]:
        self._gate.check()
        self._ahead.forget([change.key for change in changes])
        with self.writing(), self._calling() as call:
            try:
                failures = self._commits.make(call, changes, together=together)
            except NotAcknowledged as failure:
                raise TransactionFailed("", self.path, failure.error, in_doubt=failure.in_doubt) from failure
        return {
            key: CheckpointWriteFailed(key, self.path_of(key), failure.error, in_doubt=failure.in_doubt)
            for key, failure in failures.items()
        }

    def highest_generation(self, key: str) -> int:
        return 0  # what is in etcd is there for good: no crash brings anything back

    def quarantine(self, key: str, reason: str) -> str:
        with self.writing(), self._calling() as call:  # a reader compares no lock, so etcd would not refuse it
            kept = self._quarantine.keep(call, key, reason, self.path_of(key))
        return f"{self.path}/{kept}"

    def quarantined(self) -> dict[str, list[str]]:
        with self._gate, self._calling() as call:
            kept = self._quarantine.kept(call)
        return {key: [f"{self.path}/{name}" for name in names] for key, names in kept.items()}

    def delete_copy(self, copy: str) -> None:
        """Delete a copy from quarantined() for good."""
        with self.writing(), self._calling() as call:
            self._quarantine.delete(call, copy.rpartition("/")[2], copy)

    def snapshot(self) -> Iterator[tuple[str, bytes]]:
        """Every name below the prefix and its bytes, as of one moment: for a backup, or to store them as files.

        The names are those of a directory: `<key>.json`, `.previous-<key>`, `.lock`, `.quarantine/…`.
        """
        start = f"{self._layout.prefix}/".encode()
        pages = values(self._client, self._timeout, start, after_all(start))
        while True:
            with self._gate, self._calling():
                page = next(pages, None)
            if page is None:
                return
            yield from ((self._layout.below(kv.key), kv.value) for kv in page.kvs)

    def close(self) -> None:
        self._gate.close(self._give_back)

    def __repr__(self) -> str:
        return f"EtcdStore({self.path!r})"

    def _give_back(self) -> None:
        try:
            self._ownership.close()
        finally:
            self._client.close()

    def _read_ahead(self, call: StoreCall, key: str, *, previous: bool) -> Seen | None:
        """Its value, if this thread expects to read it; the first read of several fetches a page of them."""
        change, load = self._ahead.change, self._ahead.load
        if change and previous:
            return change.previous.get(key, lambda page: self._commits.read(call, page, previous=True))
        if change:  # never from a load: a change is based on what is there now
            return change.current.get(key, lambda page: change.note_absent(self._commits.read(call, page)))
        if load and not previous:
            return load.get(key, lambda page: self._commits.read(call, page, revision=load.revision))
        return None

    def _changing(self) -> Generator[None, None, None]:
        """One change, from the first read to the commit. A change within a change is part of it."""
        with self._gate:
            outer = self._ahead.change
            self._ahead.change = outer or ChangeReads()
            try:
                yield
            finally:
                self._ahead.change = outer

    @contextmanager
    def _calling(self) -> Iterator[StoreCall]:
        """The time that a call may take, within a change what the change has left.

        A missing answer says nothing about a checkpoint, so it is an error of the whole store.
        """
        change = self._ahead.change
        call = StoreCall(self._timeout, change.spent if change else 0.0)
        try:
            yield call
        except WentBack as error:
            raise EtcdWentBack(self.path, error) from error
        except Failed as error:
            raise EtcdUnavailable(self.path, error) from error
        finally:
            if change:
                change.spent = self._timeout - call.left()


def _check_seconds(**options: object) -> None:
    for name, value in options.items():
        if not isinstance(value, int | float) or isinstance(value, bool) or not 0 < value <= MAX_SECONDS:
            raise ValueError(f"{name} is a number of seconds above 0 and at most {MAX_SECONDS:.0f}, not {value!r}")
