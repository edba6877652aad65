"""A Store as one manager may use it: read-only, shared with other managers, or with its own size limit."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext

from ._filestore.ownership import ReadOnly
from ._format.reason import Damaged, Reason
from ._store import Store

_shared: weakref.WeakKeyDictionary[Store, threading.RLock] = weakref.WeakKeyDictionary()
_sharing = threading.Lock()  # guards _shared


class StoreView:
    """Applies the options of a directory to a store that has none. Other users of the store are not affected."""

    def __init__(self, store: Store, *, sharing: bool, read_only: bool, max_bytes: int | None) -> None:
        if sharing and read_only:
            raise ValueError("read_only takes no lock, so there is nothing to share: pass only one of the two")
        self.store = store
        self.path = store.path
        self.exclusive = store.exclusive and not sharing and not read_only
        self.max_bytes = store.max_bytes if max_bytes is None else min(max_bytes, store.max_bytes)
        self._read_only = read_only
        self._guard = _guard_of(store) if sharing else nullcontext()
        self.path_of, self.keys, self.exists, self.expect = store.path_of, store.keys, store.exists, store.expect
        self.identity = store.identity
        self.confirm, self.commit, self.transact = store.confirm, store.commit, store.transact
        self.close = store.close
        self.highest_generation = store.highest_generation
        self.quarantine, self.quarantined = store.quarantine, store.quarantined

    def read(self, key: str, *, previous: bool = False) -> bytes:
        blob = self.store.read(key, previous=previous)
        if len(blob) > self.max_bytes:
            raise Damaged(Reason.TOO_LARGE, f"{len(blob)} bytes, over the limit of max_bytes={self.max_bytes}")
        return blob

    @contextmanager
    def writing(self) -> Iterator[None]:
        refusal = ReadOnly(self.path).writing() if self._read_only else nullcontext()
        with refusal, self._guard, self.store.writing():
            yield


def _guard_of(store: Store) -> threading.RLock:
    """One lock for all views of a store, so that no sharing manager writes between the read and write of another."""
    with _sharing:
        return _shared.setdefault(store, threading.RLock())
