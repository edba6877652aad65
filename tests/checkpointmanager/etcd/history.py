"""Everything that has ever happened below a prefix, revision by revision, and whether it was allowed."""

from __future__ import annotations

from typing import Any, NamedTuple

import orjson

from checkpointmanager import LockOwner

from .client import Etcd, Event


class Write(NamedTuple):
    """A checkpoint as one revision wrote it, and who held the lock at that moment."""

    revision: int
    key: str
    data: Any
    generation: int
    holder: str | None


class History:
    """Reads the events below a prefix. Before a compaction, call read(), and compact up to the revision it returns."""

    def __init__(self, etcd: Etcd, prefix: str) -> None:
        self._etcd = etcd
        self._prefix = f"{prefix}/"
        self._events: list[Event] = []

    def read(self) -> int:
        """Read all events up to the newest revision, and return that revision."""
        newest = max(kv.mod_revision for kv in self._etcd.names(self._prefix))
        first = self._events[-1].kv.mod_revision + 1 if self._events else 1
        if first <= newest:
            self._events += self._etcd.events(self._prefix, first, newest)
        assert self._events[0].kv.name == f"{self._prefix}.lock"
        assert self._events[0].kv.version == 1, "the beginning of the history is compacted"
        return self._events[-1].kv.mod_revision

    def writes(self) -> list[Write]:
        """Every write of a checkpoint. Fails if two owners held the lock at once, or a previous generation is missing.

        For owners that only put checkpoints, and found none that was damaged.
        """
        self.read()
        holder: str | None = None
        created = 0
        writes = []
        values: dict[str, bytes] = {}  # of each key, as the revisions before left it
        kept = {(kv.mod_revision, self._below(kv.name)): kv.value for _, kv in self._events}
        for deleted, kv in self._events:
            name = self._below(kv.name)
            if name == ".lock":
                if deleted:
                    holder, created = None, 0
                    continue
                assert created in (0, kv.create_revision), "a second owner came while the first one held the lock"
                owner = LockOwner.parse(kv.value)
                assert owner
                holder, created = owner.label, kv.create_revision
            elif not name.startswith(".") and not deleted:
                blob = orjson.loads(kv.value)
                writes.append(Write(kv.mod_revision, blob["key"], blob["data"], blob["generation"], holder))
                previous = kept.get((kv.mod_revision, f".previous-{blob['key']}"))
                assert previous == values.get(name), "the previous generation was not kept by the same revision"
                values[name] = kv.value
        return writes

    def _below(self, name: str) -> str:
        return name.removeprefix(self._prefix)
