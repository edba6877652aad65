"""A Store without a disk, for tests of agents and for platforms without the file store.

It outlives its managers: open another manager on the same MemoryStore, and the agent has "restarted".
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

from ._errors import CheckpointNotFound, CheckpointWriteFailed
from ._format.reason import Damaged, Reason
from ._store import Current, Put

KEPT_PER_KEY = 4


class MemoryStore:
    """Bytes by key in three dicts, which tests may damage as they like."""

    def __init__(self) -> None:
        self.path = "memory:"
        self.max_bytes = 64 << 20
        self.exclusive = True
        self.current: dict[str, bytes] = {}  # the checkpoints, by key
        self.previous: dict[str, bytes] = {}  # the generation before, by key
        self.kept: dict[str, dict[str, bytes]] = {}  # in quarantine: by key, then by the path that stands for the copy
        self._quarantines = 0
        self._lock = threading.RLock()  # reentrant: a signal handler may use the store while its thread holds it

    def path_of(self, key: str) -> str:
        return f"{self.path}{key}"

    def keys(self) -> list[str]:
        with self._lock:
            return list(self.current)

    def exists(self, key: str) -> bool:
        return key in self.current

    def read(self, key: str, *, previous: bool = False) -> bytes:
        kept = (self.previous if previous else self.current).get(key)
        if kept is None:
            raise CheckpointNotFound(key, self.path_of(key))
        if len(kept) > self.max_bytes:
            raise Damaged(Reason.TOO_LARGE, f"{len(kept)} bytes, over the limit of max_bytes={self.max_bytes}")
        return kept

    def identity(self, key: str) -> object:
        return self.current.get(key)

    def expect(self, keys: Sequence[str]) -> None:
        """Nothing to prefetch."""

    @contextmanager
    def writing(self) -> Iterator[None]:
        yield

    def confirm(self, keys: Sequence[str] = ()) -> None:
        """No other process can own the store."""

    def commit(self, puts: Sequence[Put], removals: Sequence[str] = ()) -> dict[str, CheckpointWriteFailed]:
        self._change(puts, removals)
        return {}

    def transact(self, puts: Sequence[Put], removals: Mapping[str, int]) -> None:
        self._change(puts, list(removals))

    def highest_generation(self, key: str) -> int:
        return 0

    def quarantine(self, key: str, reason: Reason) -> str:
        with self._lock:
            kept = self.kept.setdefault(key, {})
            blob = self.current[key]
            for kept_as, copy in kept.items():
                if copy == blob:
                    return kept_as
            self._quarantines += 1
            kept_as = f"{self.path_of(key)}.{self._quarantines}.{reason}"
            kept[kept_as] = blob
            for oldest in list(kept)[:-KEPT_PER_KEY]:
                del kept[oldest]
        return kept_as

    def quarantined(self) -> dict[str, list[str]]:
        with self._lock:
            return {key: list(kept) for key, kept in self.kept.items()}

    def close(self) -> None:
        """Nothing to release: the next manager finds what this one wrote."""

    def _change(self, puts: Sequence[Put], removals: Sequence[str]) -> None:
        """Cannot fail halfway, so it serves transactions too."""
        with self._lock:
            for put in puts:
                if put.current is Current.ABSENT:
                    self.previous.pop(put.key, None)
                elif put.current is not Current.DAMAGED and put.key in self.current:
                    self.previous[put.key] = self.current[put.key]
                self.current[put.key] = put.blob
            for key in removals:
                self.current.pop(key, None)
                self.previous.pop(key, None)
