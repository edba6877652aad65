"""Everybody who takes part: us, the bare system calls, and what people would use instead.

All store the same claims and answer `update` only when it is as durable as they get. Who is not durable at its
settings says so in `durable`.
"""

from __future__ import annotations

import fcntl
import os
import signal
import threading
import zlib
from collections import defaultdict, deque
from collections.abc import Iterable, Sized
from contextlib import suppress
from pathlib import Path
from typing import Any

import orjson
from xxhash import xxh3_64_hexdigest

from checkpointmanager import CheckpointManager, FileStore
from checkpointmanager._filestore.spares import SPARE_LIMIT
from checkpointmanager._filestore.system import exchange, fcntl_at_once
from checkpointmanager._gcpause import gc_paused
from draState import CLAIMS, ClaimInfoCache

from .claims import as_json
from .contender import Contender, OneByOne, State
from .databases import Diskcache, Lmdb, Rocks, Shelve, Sqlite

OURS = "checkpointmanager"
BARE_BYTES = 1024  # of each claim in the bare loop over spares


class Ours:
    """The CheckpointManager with default settings: typed data, previous generation kept, full durability."""

    durable = True

    def __init__(self, name: str, *, spares: bool) -> None:
        self.name = name
        way = "" if spares else "; no spares, so two syncs"
        self.settings = f"defaults: typed schema, previous generation kept, durability full{way}"
        self._spares = spares

    def open(self, directory: Path) -> None:
        self._store = FileStore(directory)
        if not self._spares:
            self._store._spares.works = False  # as where kernel or file system lack a call
        self._manager = CheckpointManager(self._store, CLAIMS)

    def update(self, state: State) -> None:
        self._manager.create_checkpoint(state.claim_uid, state)

    def update_many(self, states: Iterable[State]) -> None:
        with self._manager.batch() as batch:
            for state in states:
                batch.create_checkpoint(state.claim_uid, state)

    def remove(self, uid: str) -> None:
        self._manager.remove_checkpoint(uid)

    def load(self) -> Sized:
        return ClaimInfoCache(self._store)

    def close(self) -> None:
        self._manager.close()


class Files(OneByOne):
    """One JSON file a claim, replaced by rename. With both syncs this is the floor."""

    def __init__(self, name: str, *, sync_file: bool, sync_directory: bool) -> None:
        self.name = name
        self.durable = sync_file and sync_directory
        self._sync_file = sync_file
        self._sync_directory = sync_directory
        self.settings = f"fsync of the file: {sync_file}, of the directory: {sync_directory}"

    def open(self, directory: Path) -> None:
        self._directory = os.open(directory, os.O_RDONLY)

    def update(self, state: State) -> None:
        name = f"{state.claim_uid}.json"
        temp = f".tmp-{threading.get_ident()}"
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
        descriptor = os.open(temp, flags, 0o600, dir_fd=self._directory)
        os.write(descriptor, orjson.dumps(as_json(state)))
        if self._sync_file:
            os.fsync(descriptor)
        os.close(descriptor)
        self._replace(temp, name)
        if self._sync_directory:
            os.fsync(self._directory)

    def _replace(self, temp: str, name: str) -> None:
        os.rename(temp, name, src_dir_fd=self._directory, dst_dir_fd=self._directory)

    def remove(self, uid: str) -> None:
        os.unlink(f"{uid}.json", dir_fd=self._directory)
        if self._sync_directory:
            os.fsync(self._directory)

    def load(self) -> Sized:
        """The bare loop: read, hash, parse. No types, no header, no index."""
        claims = {}
        with gc_paused():
            for name in os.listdir(self._directory):
                if name.startswith("."):
                    continue
                descriptor = os.open(name, os.O_RDONLY, dir_fd=self._directory)
                blob = os.read(descriptor, 1 << 16)
                os.close(descriptor)
                claims[name] = xxh3_64_hexdigest(blob), orjson.loads(blob)
        return claims

    def close(self) -> None:
        os.close(self._directory)


class OneWriterAKey(Files):
    """Both syncs, and two writers of one key wait for each other, as ours do."""

    def __init__(self, name: str) -> None:
        super().__init__(name, sync_file=True, sync_directory=True)

    def open(self, directory: Path) -> None:
        super().open(directory)
        self._locks: defaultdict[str, threading.Lock] = defaultdict(threading.Lock)

    def update(self, state: State) -> None:
        with self._locks[state.claim_uid]:
            self._write(state)

    def _write(self, state: State) -> None:
        super().update(state)


class BareClassic(OneWriterAKey):
    """The system calls of our classic way in a loop, no library: the floor, and the previous generation kept."""

    def _replace(self, temp: str, name: str) -> None:
        link = f"{temp}-link"
        with suppress(FileNotFoundError):
            os.link(name, link, src_dir_fd=self._directory, dst_dir_fd=self._directory)
            os.rename(link, f".previous-{name}", src_dir_fd=self._directory, dst_dir_fd=self._directory)
        super()._replace(temp, name)


class BareOneSync(OneWriterAKey):
    """The system calls of our way over spares in a loop, no library: what is left for Python to add to."""

    def open(self, directory: Path) -> None:
        super().open(directory)
        self._free: deque[str] = deque()
        self._pending: deque[str] = deque()
        self._syncing = threading.Lock()
        for number in range(SPARE_LIMIT):
            spare = f".spare-{number}"
            descriptor = os.open(spare, os.O_WRONLY | os.O_CREAT, 0o600, dir_fd=self._directory)
            os.write(descriptor, bytes(BARE_BYTES))
            os.close(descriptor)
            self._free.append(spare)
        os.sync()

    def _write(self, state: State) -> None:
        name, previous = f"{state.claim_uid}.json", f".previous-{state.claim_uid}"
        spare = self._take()
        descriptor = os.open(spare, os.O_WRONLY, dir_fd=self._directory)
        os.fstat(descriptor)
        fcntl_at_once(descriptor, fcntl.F_SETSIG, signal.SIGURG)
        fcntl_at_once(descriptor, fcntl.F_SETLEASE, fcntl.F_WRLCK)
        fcntl_at_once(descriptor, fcntl.F_SETLEASE, fcntl.F_UNLCK)
        os.write(descriptor, orjson.dumps(as_json(state)).ljust(BARE_BYTES))
        os.fdatasync(descriptor)
        os.close(descriptor)
        try:
            exchange(self._directory, spare, name)
        except FileNotFoundError:
            super()._write(state)
            os.close(os.open(previous, os.O_WRONLY | os.O_CREAT, 0o600, dir_fd=self._directory))
        else:
            exchange(self._directory, spare, previous)
        self._pending.append(spare)

    def _take(self) -> str:
        while True:
            try:
                return self._free.popleft()
            except IndexError:
                with self._syncing:
                    if not self._free:
                        count = len(self._pending)
                        os.fsync(self._directory)
                        self._free.extend(self._pending.popleft() for _ in range(count))


class KubeletsWay(OneByOne):
    """All claims in one file, rewritten for each change, the file synced, the directory not.

    Written for this benchmark after the published behaviour of kubelet's DRA checkpoint; not kubelet's code.
    """

    name = "kubelet's way"
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


def everybody() -> list[Contender]:
    return [
        Ours(OURS, spares=True),
        Ours("the same, classic way", spares=False),
        Files("floor", sync_file=True, sync_directory=True),
        BareClassic("classic way, bare"),
        BareOneSync("one sync, bare"),
        Sqlite("WAL"),
        Lmdb(),
        Rocks(),
        Diskcache(),
        Files("json + replace + fsync", sync_file=True, sync_directory=False),
        Files("json + replace", sync_file=False, sync_directory=False),
        Shelve(),
        KubeletsWay(),
    ]
