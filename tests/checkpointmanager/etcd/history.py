"""Everything that ever happened below a prefix, revision by revision, and whether it was allowed."""

from __future__ import annotations

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


def events_below(endpoints: list[str], prefix: str) -> list[Any]:
    """All of them, in order, from the moment at which the lock was taken for the first time."""
    client = Client(endpoints, Credentials())
    start = f"{prefix}/".encode()
    newest = _newest(client, start)
    events: list[Any] = []
    first = 1
    while not events or events[-1].kv.mod_revision < newest:
        request = WATCH.request(create_request={"key": start, "range_end": after_all(start), "start_revision": first})
        with client.watching(request, 30) as replies:
            for reply in replies:
                events += reply.events
                if reply.canceled:  # an earlier test has compacted what was before
                    first = reply.compact_revision
                    break
                if events and events[-1].kv.mod_revision >= newest:
                    break
    client.close()
    assert events[0].kv.key.endswith(b"/.lock")
    assert events[0].kv.version == 1, "the history is compacted"
    return events


def _newest(client: Client, start: bytes) -> int:
    request = RANGE.request(key=start, range_end=after_all(start), keys_only=True)
    return max(int(kv.mod_revision) for kv in client.ask(Call(10), RANGE, request).kvs)


def writes_below(endpoints: list[str], prefix: str) -> list[Write]:
    """Every write of a checkpoint; fails if two owners held the lock at once."""
    holder: str | None = None
    created = 0
    writes = []
    for event in events_below(endpoints, prefix):
        name = event.kv.key.decode().removeprefix(f"{prefix}/")
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
    return writes
