"""The last seen value of each key, so that a write need not read first. Never trusted: etcd compares it."""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import NamedTuple

MAX_BYTES = 16 << 20
ENTRY_BYTES = 200  # beyond the value: a key that does not exist takes room as well


class Seen(NamedTuple):
    """A value, and the revision that wrote it; 0 if there was none."""

    revision: int
    blob: bytes = b""


class LastSeen:
    """The values seen most recently, up to a number of bytes."""

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
            self._bytes += ENTRY_BYTES + len(seen.blob)
            while self._bytes > MAX_BYTES:
                _, oldest = self._seen.popitem(last=False)
                self._bytes -= ENTRY_BYTES + len(oldest.blob)

    def forget(self, key: str) -> None:
        with self._lock:
            gone = self._seen.pop(key, None)
            self._bytes -= ENTRY_BYTES + len(gone.blob) if gone else 0
