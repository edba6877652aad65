"""All contenders: us, the bare system calls, and what people would use instead.

All store the same claims, and `update` returns only when the change is as durable as it will be. A contender that is
not durable at its settings says so in `durable`.
"""

from __future__ import annotations

import os
import threading
import zlib
from collections.abc import Iterable, Sequence, Sized
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import orjson

from checkpointmanager import CheckpointManager, FileStore
from draState import CLAIMS, ClaimInfoCache

from .bare import BareClassic, BareOneSync, Files
from .claims import as_json
from .contender import Contender, OneByOne, State
from .databases import PACKAGES, Diskcache, Lmdb, Rocks, Shelve, Sqlite

OURS = "checkpointmanager"
OURS_CLASSIC = "checkpointmanager, classic"
FLOOR = "floor"
BARE = "one sync, bare"
KUBELET = "kubelet's way"


class Ours:
    """The CheckpointManager with default settings: typed data, previous generation kept, full durability."""

    durable = True

    def __init__(self, name: str, *, spares: bool) -> None:
        self.name = name
        way = "defaults" if spares else "defaults, but no spares, so two syncs"
        self.settings = f"{way}: typed schema, previous generation kept, durability full"
        self._spares = spares

    def open(self, directory: Path) -> None:
        self._store = FileStore(directory)
        if not self._spares:
            self._store._spares.works = False  # as if the kernel or the file system lacked a call
        self._manager = CheckpointManager(self._store, CLAIMS)

    def update(self, state: State) -> None:
        self._manager.create_checkpoint(state.claim_uid, state)

    def update_many(self, states: Iterable[State]) -> None:
        with self._manager.batch() as batch:
            for state in states:
                batch.create_checkpoint(state.claim_uid, state)

    fill = update_many

    def update_together(self, states: Iterable[State]) -> None:
        with self._manager.transaction() as transaction:
            for state in states:
                transaction.create_checkpoint(state.claim_uid, state)

    def remove(self, uid: str) -> None:
        self._manager.remove_checkpoint(uid)

    def load(self) -> Sized:
        return ClaimInfoCache(self._store)

    def close(self) -> None:
        self._manager.close()


class KubeletsWay(OneByOne):
    """All claims in one file, which each change rewrites; the file is synced, the directory is not.

    Written for this benchmark after the published behaviour of kubelet's DRA checkpoint; not kubelet's code.
    """

    name = KUBELET
    durable = False
    settings = "one file for all claims, CRC-32 over the data, no directory sync"

    def open(self, directory: Path) -> None:
        self._directory = os.open(directory, os.O_RDONLY)
        self._lock = threading.Lock()
        self._claims: dict[str, dict[str, Any]] = {}
        if (directory / "dra_manager_state").exists():
            self.load()

    def update(self, state: State) -> None:
        with self._lock:
            self._claims[state.claim_uid] = as_json(state)
            self._store()

    def update_many(self, states: Iterable[State]) -> None:
        with self._lock:
            self._claims.update({state.claim_uid: as_json(state) for state in states})
            self._store()

    fill = update_together = update_many

    def remove(self, uid: str) -> None:
        with self._lock:
            del self._claims[uid]
            self._store()

    def _store(self) -> None:
        data = orjson.dumps({"kind": "DRACheckpoint", "ClaimInfoStateList": list(self._claims.values())})
        blob = orjson.dumps({"Data": data.decode(), "Checksum": zlib.crc32(data)})
        descriptor = os.open(".temp", os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600, dir_fd=self._directory)
        os.write(descriptor, blob)
        os.fsync(descriptor)
        os.close(descriptor)
        os.rename(".temp", "dra_manager_state", src_dir_fd=self._directory, dst_dir_fd=self._directory)

    def load(self) -> Sized:
        descriptor = os.open("dra_manager_state", os.O_RDONLY, dir_fd=self._directory)
        blob = b""
        while piece := os.read(descriptor, 1 << 24):
            blob += piece
        os.close(descriptor)
        outer = orjson.loads(blob)
        assert zlib.crc32(outer["Data"].encode()) == outer["Checksum"]
        claims = orjson.loads(outer["Data"])["ClaimInfoStateList"]
        self._claims = {claim["claim_uid"]: claim for claim in claims}
        return self._claims

    def close(self) -> None:
        os.close(self._directory)


def installed(names: Sequence[str] = ()) -> tuple[list[Contender], list[str]]:
    """The contenders with these names (all if none is passed) whose packages are installed, and the other names."""
    chosen = [contender for contender in _everybody() if not names or contender.name in names]
    if unknown := set(names) - {contender.name for contender in chosen}:
        raise ValueError(f"no contender is called {', '.join(sorted(unknown))}")
    there = [each for each in chosen if each.name not in PACKAGES or find_spec(PACKAGES[each.name])]
    return there, [contender.name for contender in chosen if contender not in there]


def _everybody() -> list[Contender]:
    return [
        Ours(OURS, spares=True),
        Ours(OURS_CLASSIC, spares=False),
        Files(FLOOR, sync_file=True, sync_directory=True),
        BareOneSync(BARE),
        BareClassic("classic, bare"),
        Sqlite(),
        Lmdb(),
        Rocks(),
        Diskcache(),
        Files("json + replace + fsync", sync_file=True, sync_directory=False),
        Files("json + replace", sync_file=False, sync_directory=False),
        Shelve(),
        KubeletsWay(),
    ]
