"""Everything that has ever happened below a prefix, revision by revision, and whether it was allowed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import orjson

from checkpointmanager import LockOwner
from checkpointmanager._etcd.client import Call, Client
from checkpointmanager._etcd.endpoints import Credentials
from checkpointmanager._etcd.layout import after_all
from checkpointmanager._etcd.wire import DELETED, RANGE, WATCH


class Write(NamedTuple):
    """A checkpoint as one revision wrote it, and who held the lock at that moment."""

    revision: int
    key: str
    data: Any
    generation: int
    holder: str | None


class History:
    """Reads the events below a prefix. Before a compaction, call read(), and compact up to the revision it returns."""

    def __init__(self, endpoints: Sequence[str], prefix: str, **credentials: Any) -> None:
        self._endpoints = endpoints
        self._credentials = Credentials(**credentials)
        self._prefix = prefix
        self._events: list[Any] = []

    def read(self) -> int:
        """Read all events up to the newest revision, and return that revision."""
        client = Client(self._endpoints, self._credentials)
        client.ask(Call(10), RANGE, RANGE.request(key=b"ready"))  # logs in
        try:
            self._read(client)
        finally:
            client.close()
        return int(self._events[-1].kv.mod_revision)

    def _read(self, client: Client) -> None:
        start = f"{self._prefix}/".encode()
        request = RANGE.request(key=start, range_end=after_all(start), keys_only=True)
        newest = max(int(kv.mod_revision) for kv in client.ask(Call(10), RANGE, request).kvs)
        first = self._events[-1].kv.mod_revision + 1 if self._events else 1
        while not self._events or self._events[-1].kv.mod_revision < newest:
            watch = {"key": start, "range_end": after_all(start), "start_revision": first}
            with client.watching(WATCH.request(create_request=watch), 30) as replies:
                for reply in replies:
                    self._events += reply.events
                    if reply.canceled:  # an earlier test has compacted the first revisions
                        assert not self._events, "a part of the history is compacted"
                        first = reply.compact_revision
                        break
                    if self._events and self._events[-1].kv.mod_revision >= newest:
                        break
        assert self._events[0].kv.key.endswith(b"/.lock")
        assert self._events[0].kv.version == 1, "the beginning of the history is compacted"

    def writes(self) -> list[Write]:
        """Every write of a checkpoint. Fails if two owners held the lock at once, or a previous generation is missing.

        For owners that only put checkpoints, and found none that was damaged.
        """
        self.read()
        holder: str | None = None
        created = 0
        writes = []
        values: dict[str, bytes] = {}  # of each key, as the revisions before left it
        kept = {(event.kv.mod_revision, self._name(event)): event.kv.value for event in self._events}
        for event in self._events:
            name = self._name(event)
            if name == ".lock":
                if event.type == DELETED:
                    holder, created = None, 0
                    continue
                assert created in (0, event.kv.create_revision), "a second owner came while the first one held the lock"
                owner = LockOwner.parse(event.kv.value)
                assert owner
                holder, created = owner.label, event.kv.create_revision
            elif not name.startswith(".") and event.type != DELETED:
                blob = orjson.loads(event.kv.value)
                writes.append(Write(event.kv.mod_revision, blob["key"], blob["data"], blob["generation"], holder))
                previous = kept.get((event.kv.mod_revision, f".previous-{blob['key']}"))
                assert previous == values.get(name), "the previous generation was not kept by the same revision"
                values[name] = event.kv.value
        return writes

    def _name(self, event: Any) -> str:
        return str(event.kv.key.decode().removeprefix(f"{self._prefix}/"))
