"""A Store without a disk, for tests of agents and for platforms without the file store.

It outlives its managers: open another manager on the same MemoryStore, and the agent has "restarted".
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

from ._errors import CheckpointNotFound, CheckpointWriteFailed
from ._store import Put, Remove, Replaces
from .format import KEPT_PER_KEY, Damaged, Reason, encode_key


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
        return f"{self.path}{encode_key(key)}"

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

    def prefetch(self, keys: Sequence[str]) -> None:
        """Nothing to prefetch."""

    @contextmanager
    def writing(self) -> Iterator[None]:
        yield

    def check_owner(self, keys: Sequence[str] = ()) -> None:
        """No other process can own the store."""

    def commit(self, changes: Sequence[Put | Remove], *, together: bool = False) -> Mapping[str, CheckpointWriteFailed]:
        """Cannot fail halfway, so it serves transactions too."""
        with self._lock:
            for change in changes:
                if isinstance(change, Remove):
                    self.current.pop(change.key, None)
                    self.previous.pop(change.key, None)
                    continue
                if change.replaces is Replaces.ABSENT:
                    self.previous.pop(change.key, None)
                elif change.replaces is Replaces.WHOLE and change.key in self.current:
                    self.previous[change.key] = self.current[change.key]
                self.current[change.key] = change.blob
        return {}

    def highest_generation(self, key: str) -> int:
        return 0

    def quarantine(self, key: str, reason: str) -> str:
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
            kept = self.kept.copy()
        return {key: list(names) for key, names in kept.items()}

    def close(self) -> None:
        """Nothing to release: the next manager finds what this one wrote."""
