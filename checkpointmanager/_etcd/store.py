"""The Store on etcd: each operation of a manager in as few requests as possible."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from .._callgate import CallGate
from .._errors import CheckpointNotFound, CheckpointWriteFailed, DirectoryUnusable
from .._filestore.ownership import ReadOnly
from .._format.reason import Damaged, Reason
from .._options import check_options
from .._store import Put
from .attempts import Attempts
from .client import Call, Client
from .commit import MAX_REQUEST_BYTES, NAMES_BYTES, Commits
from .endpoints import Credentials, Path
from .faults import NoAnswer, Refused
from .layout import Layout, after_all
from .ownership import Ownership
from .pages import names, values
from .quarantine import Quarantine
from .remembered import Seen
from .together import Together
from .wire import RANGE

GRACE = 5.0  # seconds after its time to live within which etcd surely notices that a lease has expired
MAX_SECONDS = 86_400.0  # for ttl and timeout: a day is longer than anyone waits
MAX_BYTES = (MAX_REQUEST_BYTES - NAMES_BYTES) // 2  # 760 KiB: with its previous generation it fits into one request


class EtcdUnavailable(DirectoryUnusable):
    """No member of the cluster answered in time, or the request is not allowed. No checkpoint was changed.

    Check the endpoints, the health of the cluster and the credentials, then try again. Only a copy in quarantine may
    have been made, put back or deleted nevertheless: the same call again finds out.
    """

    def __init__(self, path: str, error: OSError) -> None:
        super().__init__(path, error)
        self.args = (f"{path}: {error.strerror}; check the endpoints, the cluster's health and the credentials",)


class EtcdStore:
    """Checkpoints below a prefix in etcd, for a CheckpointManager or a CheckpointCache in place of a directory.

        store = EtcdStore(["http://127.0.0.1:2379"], "/agents/node-7", ttl=15)
        with CheckpointManager(store, LEASES) as manager: ...

    It owns the prefix until it is closed; opening a second one raises DirectoryLocked. Once another owner has taken
    over, etcd itself refuses every change, which raises DirectoryLocked as well; reads go on.

    endpoints       URLs of the members, all http or all https; if one fails, the next one is used
    ttl             seconds until the lock of an owner that has died or is cut off becomes free; at most a day
    timeout         seconds that any call may take before it fails or is in doubt; at most a day
    lock_timeout    seconds to wait for the lock; by default, until the lock of a dead owner has expired. A standby that
                    waits without a limit passes math.inf
    owner           a label shown to others that find the prefix locked
    read_only       take no lock and refuse to write
    max_bytes       the limit for one checkpoint. More than 760 KiB needs servers with a larger --max-request-bytes
    ca, cert, key   PEM files: the authority to trust, and the client certificate. Read again when a request fails
                    and they have been replaced
    user, password  where authentication is switched on
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
    ) -> None:
        check_options({"lock_timeout": lock_timeout, "owner": owner, "read_only": read_only, "max_bytes": max_bytes})
        _check_seconds(ttl=ttl, timeout=timeout)
        self._layout = Layout(prefix)
        self._client = Client(endpoints, Credentials(ca, cert, key, user, password))
        self.path = f"etcd://{','.join(self._client.addresses)}{self._layout.prefix}"
        self.max_bytes = max_bytes
        self.exclusive = not read_only
        self._timeout = timeout
        self._in_flight = CallGate(self.path)
        self._expected = _Expected()
        owning = Ownership(self._client, self._layout, self.path, owner=owner, ttl=ttl, timeout=timeout)
        self._ownership = owning
        attempts = Attempts(self._client, self._layout, owning)
        self._commits = Commits(self._client, self._layout, attempts, timeout)
        self._together = Together(self._client, self._layout, attempts, self._commits, path=self.path, timeout=timeout)
        self._quarantine = Quarantine(self._client, self._layout, owning)
        if read_only:
            return
        try:
            with self._answering():
                owning.take(ttl + GRACE if lock_timeout is None else float(lock_timeout))
        except BaseException:
            self.close()
            raise
        assert owning.lease
        weakref.finalize(self, owning.lease.stop)  # if it is dropped without close(), its lease expires

    def path_of(self, key: str) -> str:
        return f"etcd://{','.join(self._client.addresses)}{self._layout.current(key).decode()}"

    def keys(self) -> list[str]:
        with self._in_flight, self._answering():
            found = names(self._client, Call(self._timeout), *self._layout.checkpoints)
        return [key for kv in found if (key := self._layout.key_of(kv.key)) is not None]

    def exists(self, key: str) -> bool:
        return self.identity(key) is not None

    def read(self, key: str, *, previous: bool = False) -> bytes:
        with self._in_flight, self._answering():
            seen = None if previous else self._expected.pop(key)
            if seen is None:
                name = self._layout.previous(key) if previous else self._layout.current(key)
                seen = self._seen(self._client.ask(Call(self._timeout), RANGE, RANGE.request(key=name)).kvs)
        if not previous:
            self._commits.remembered.keep(key, seen)
        if not seen.revision:
            raise CheckpointNotFound(key, self.path_of(key))
        if len(seen.blob) > self.max_bytes:
            detail = f"{len(seen.blob)} bytes, over the limit of max_bytes={self.max_bytes}"
            raise Damaged(Reason.TOO_LARGE, detail)
        return seen.blob

    def identity(self, key: str) -> object:
        with self._in_flight, self._answering():
            request = RANGE.request(key=self._layout.current(key), keys_only=True)
            found = self._client.ask(Call(self._timeout), RANGE, request).kvs
            return found[0].mod_revision if found else None

    def expect(self, keys: Sequence[str]) -> None:
        """One request per 128 keys instead of one each; an empty list ends it. Held for this thread alone."""
        if not keys:
            self._expected.clear()
            return
        try:
            with self._in_flight:
                self._expected.add(self._commits.read(Call(self._timeout), keys))
        except (Refused, NoAnswer):
            self._expected.clear()  # reading them one by one shows what is wrong

    def writing(self) -> AbstractContextManager[None]:
        return self._in_flight if self.exclusive else ReadOnly(self.path).writing()

    def confirm(self, keys: Sequence[str] = ()) -> None:
        self._in_flight.check()
        with self._answering():
            self._ownership.check(Call(self._timeout))

    def commit(self, puts: Sequence[Put], removals: Sequence[str] = ()) -> dict[str, CheckpointWriteFailed]:
        self._in_flight.check()
        self._expected.clear()
        with self.writing():
            failures = self._commits.run(puts, removals)
        return {
            key: CheckpointWriteFailed(key, self.path_of(key), error, in_doubt=in_doubt)
            for key, (error, in_doubt) in failures.items()
        }

    def transact(self, puts: Sequence[Put], removals: Mapping[str, int]) -> None:
        self._in_flight.check()
        self._expected.clear()
        with self.writing():
            self._together.make(puts, removals, max(MAX_REQUEST_BYTES, 2 * self.max_bytes + NAMES_BYTES))

    def highest_generation(self, key: str) -> int:
        return 0  # what is in etcd is there for good: no crash brings anything back

    def quarantine(self, key: str, reason: str) -> str:
        with self.writing(), self._answering():  # a reader compares no lock, so etcd would not refuse it
            kept = self._quarantine.keep(Call(self._timeout), key, reason, self.path_of(key))
        return f"{self.path}/{kept}"

    def quarantined(self) -> dict[str, list[str]]:
        with self._in_flight, self._answering():
            kept = self._quarantine.kept(Call(self._timeout))
        return {key: [f"{self.path}/{name}" for name in names] for key, names in kept.items()}

    def restore_copy(self, copy: str) -> str:
        """Put a copy from quarantined() back in its key's place, unchanged; the copy stays.

        Returns the copy of the bytes that it replaced, "" if it replaced none.
        """
        with self.writing(), self._answering():
            kept = self._quarantine.restore(Call(self._timeout), copy.rpartition("/")[2], copy)
        return f"{self.path}/{kept}" if kept else ""

    def delete_copy(self, copy: str) -> None:
        """Delete a copy from quarantined() for good."""
        with self.writing(), self._answering():
            self._quarantine.delete(Call(self._timeout), copy.rpartition("/")[2], copy)

    def snapshot(self) -> Iterator[tuple[str, bytes]]:
        """Every name below the prefix and its bytes, as of one moment: for a backup, or to store them as files.

        The names are those of a directory: `<key>.json`, `.previous-<key>`, `.lock`, `.quarantine/…`.
        """
        start = f"{self._layout.prefix}/".encode()
        pages = values(self._client, self._timeout, start, after_all(start))
        while True:
            with self._in_flight, self._answering():
                page = next(pages, None)
            if page is None:
                return
            yield from ((self._layout.below(kv.key), kv.value) for kv in page)

    def close(self) -> None:
        self._in_flight.close(self._give_back)

    def __repr__(self) -> str:
        return f"EtcdStore({self.path!r})"

    def _give_back(self) -> None:
        try:
            self._ownership.close()
        finally:
            self._client.close()

    def _seen(self, found: Any) -> Seen:
        return Seen(found[0].mod_revision, found[0].value) if found else Seen(0)

    @contextmanager
    def _answering(self) -> Iterator[None]:
        """A missing answer says nothing about a checkpoint, so it is an error of the whole store."""
        try:
            yield
        except (Refused, NoAnswer) as error:
            raise EtcdUnavailable(self.path, error) from error


class _Expected(threading.local):
    """Values that were read ahead. Each is used once, so a second read asks the server."""

    def __init__(self) -> None:
        self._seen: dict[str, Seen] = {}

    def add(self, seen: Mapping[str, Seen]) -> None:
        self._seen.update(seen)

    def pop(self, key: str) -> Seen | None:
        return self._seen.pop(key, None)

    def clear(self) -> None:
        self._seen.clear()


def _check_seconds(**options: object) -> None:
    for name, value in options.items():
        if not isinstance(value, int | float) or isinstance(value, bool) or not 0 < value <= MAX_SECONDS:
            raise ValueError(f"{name} is a number of seconds above 0 and at most {MAX_SECONDS:.0f}, not {value!r}")
