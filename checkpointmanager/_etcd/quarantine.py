"""Where the bytes of damaged checkpoints are kept before anything replaces them: below `.quarantine/`."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from .._errors import CheckpointNotFound
from .._format.names import QUARANTINE
from .._format.reason import Reason
from . import operations
from .client import Call, Client
from .layout import Layout, after_all
from .ownership import Ownership
from .pages import names
from .wire import RANGE, TXN

KEPT_PER_KEY = 4

_TIME = "%Y%m%dT%H%M%S%fZ"
_NAME = re.compile(r"(.+)\.(\d{8}T\d{12}Z)\.[a-z-]+\.json")


class Copy(NamedTuple):
    """Ordered by when it was made, which etcd knows better than any clock."""

    revision: int
    name: bytes
    key: str


class Quarantine:
    """That of one prefix."""

    def __init__(self, client: Client, layout: Layout, ownership: Ownership | None) -> None:
        self._client = client
        self._layout = layout
        self._ownership = ownership

    def keep(self, call: Call, key: str, reason: Reason, path: str) -> str:
        """Make a copy of what stands there now, if there is none yet, and return its name."""
        assert self._ownership
        while True:
            found = self._client.ask(call, RANGE, RANGE.request(key=self._layout.current(key))).kvs
            if not found:
                raise CheckpointNotFound(key, path)
            copies = self._copies(call, self._layout.copies(key), key)
            for copy in copies:
                if self._value(call, copy.name) == found[0].value:
                    return self._layout.below(copy.name)
            name = self._new_name(key, reason, {copy.name for copy in copies})
            surplus = [operations.delete(copy.name) for copy in copies[: 1 - KEPT_PER_KEY]]
            hold = self._ownership.hold
            request = operations.txn(
                [
                    *self._ownership.comparisons(hold),
                    operations.changed_at(self._layout.current(key), found[0].mod_revision),
                ],
                [operations.put(name, found[0].value), *surplus],
                [operations.get(self._layout.lock)],
            )
            reply = self._client.ask(call, TXN, request)
            if reply.succeeded:
                return self._layout.below(name)
            self._ownership.learn(reply.responses[0].response_range.kvs)

    def kept(self, call: Call) -> dict[str, list[str]]:
        """The names of each key's copies, oldest first."""
        found: dict[str, list[str]] = {}
        for copy in self._copies(call, self._layout.quarantine):
            found.setdefault(copy.key, []).append(self._layout.below(copy.name))
        return found

    def _copies(self, call: Call, start: bytes, key: str | None = None) -> list[Copy]:
        copies = []
        for kv in names(self._client, call, start, after_all(start)):
            match = _NAME.fullmatch(self._layout.below(kv.key).removeprefix(f"{QUARANTINE}/"))
            if match and key in (None, match[1]):
                copies.append(Copy(kv.create_revision, kv.key, match[1]))
        return sorted(copies)

    def _value(self, call: Call, name: bytes) -> bytes | None:
        found = self._client.ask(call, RANGE, RANGE.request(key=name)).kvs
        return found[0].value if found else None

    def _new_name(self, key: str, reason: Reason, taken: set[bytes]) -> bytes:
        time = datetime.now(UTC)
        while (name := self._layout.copies(key) + f"{time.strftime(_TIME)}.{reason}.json".encode()) in taken:
            time += timedelta(microseconds=1)
        return name
