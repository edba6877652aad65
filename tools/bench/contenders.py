"""All contenders: us, the bare calls that replace a file, and what people would use instead.

All store the same claims, and a change returns only when it is as durable as it will be. A contender that is not
durable at its settings says so in `durable`.
"""

from __future__ import annotations

import gc
import os
import sqlite3
import threading
import zlib
from collections.abc import Iterable, Sized
from pathlib import Path
from typing import Any, Protocol

import orjson
from xxhash import xxh3_64_hexdigest

from checkpointmanager import CheckpointManager
from draState import CLAIMS, ClaimInfoState

from .claims import as_json

OURS = "checkpointmanager"
FLOOR = "floor"
SQLITE = "sqlite3"
KUBELET = "kubelet's way"
CREATE = os.O_WRONLY | os.O_CREAT | os.O_EXCL


class Contender(Protocol):
    """One way to keep claims in a directory."""

    name: str
    durable: bool
    settings: str

    def open(self, directory: Path) -> None: ...
    def update(self, state: ClaimInfoState) -> None: ...
    def update_many(self, states: Iterable[ClaimInfoState]) -> None: ...
    def update_together(self, states: Iterable[ClaimInfoState]) -> None:
        """All or none; a contender that cannot do that makes one update after another."""
        ...

    def fill(self, states: Iterable[ClaimInfoState]) -> None:
        """Like update_many, before the clock starts and as fast as possible; a crash may lose it."""
        ...

    def remove(self, uid: str) -> None: ...
    def load(self) -> Sized:
        """Read everything into objects, as after a restart, and return them all."""
        ...

    def close(self) -> None: ...


class Ours:
    """The CheckpointManager with default settings."""

    name = OURS
    durable = True
    settings = "defaults: typed schema, previous generation kept, durability full"

    def open(self, directory: Path) -> None:
        self._manager = CheckpointManager(directory, CLAIMS)

    def update(self, state: ClaimInfoState) -> None:
        self._manager.create_checkpoint(state.claim_uid, state)

    def update_many(self, states: Iterable[ClaimInfoState]) -> None:
        with self._manager.batch() as batch:
            for state in states:
                batch.create_checkpoint(state.claim_uid, state)

    fill = update_many

    def update_together(self, states: Iterable[ClaimInfoState]) -> None:
        with self._manager.transaction() as transaction:
            for state in states:
                transaction.create_checkpoint(state.claim_uid, state)

    def remove(self, uid: str) -> None:
        self._manager.remove_checkpoint(uid)

    def load(self) -> Sized:
        return self._manager.load().checkpoints

    def close(self) -> None:
        self._manager.close()


class Floor:
    """The bare calls that replace a file durably: write a temp file, fsync, rename, fsync the directory."""

    name = FLOOR
    durable = True
    settings = "one file per claim; fsync of the file and of the directory; a transaction is made one by one"

    def open(self, directory: Path) -> None:
        self._directory = os.open(directory, os.O_RDONLY)

    def update(self, state: ClaimInfoState) -> None:
        self._replace(state, sync=True)

    def update_many(self, states: Iterable[ClaimInfoState]) -> None:
        for state in states:
            self._replace(state, sync=True)

    update_together = update_many

    def fill(self, states: Iterable[ClaimInfoState]) -> None:
        for state in states:
            self._replace(state, sync=False)

    def _replace(self, state: ClaimInfoState, *, sync: bool) -> None:
        temp = f".tmp-{threading.get_ident()}"
        descriptor = os.open(temp, CREATE, 0o600, dir_fd=self._directory)
        os.write(descriptor, orjson.dumps(as_json(state)))
        if sync:
            os.fsync(descriptor)
        os.close(descriptor)
        os.rename(temp, f"{state.claim_uid}.json", src_dir_fd=self._directory, dst_dir_fd=self._directory)
        if sync:
            os.fsync(self._directory)

    def remove(self, uid: str) -> None:
        os.unlink(f"{uid}.json", dir_fd=self._directory)
        os.fsync(self._directory)

    def load(self) -> Sized:
        """The bare loop: read, hash, parse. No types, no header, no index."""
        claims = {}
        gc.disable()
        for name in os.listdir(self._directory):
            if not name.startswith("."):
                descriptor = os.open(name, os.O_RDONLY, dir_fd=self._directory)
                blob = os.read(descriptor, 1 << 16)
                os.close(descriptor)
                claims[name] = xxh3_64_hexdigest(blob), orjson.loads(blob)
        gc.enable()
        return claims

    def close(self) -> None:
        os.close(self._directory)


class Sqlite:
    """The standard library's sqlite3. All threads share a connection: separate ones sleep to wait, which is slower."""

    name = SQLITE
    durable = True
    settings = "journal_mode=WAL, synchronous=FULL, one connection"

    def open(self, directory: Path) -> None:
        self._lock = threading.Lock()
        self._connection = sqlite3.connect(directory / "claims.db", isolation_level=None, check_same_thread=False)
        self._connection.execute("PRAGMA journal_mode=WAL")
        self._connection.execute("PRAGMA synchronous=FULL")
        self._connection.execute("CREATE TABLE IF NOT EXISTS claims (uid TEXT PRIMARY KEY, data BLOB)")

    def update(self, state: ClaimInfoState) -> None:
        row = (state.claim_uid, orjson.dumps(as_json(state)))
        with self._lock:
            self._connection.execute("REPLACE INTO claims VALUES (?, ?)", row)

    def update_many(self, states: Iterable[ClaimInfoState]) -> None:
        rows = [(state.claim_uid, orjson.dumps(as_json(state))) for state in states]
        with self._lock:
            self._connection.execute("BEGIN IMMEDIATE")
            self._connection.executemany("REPLACE INTO claims VALUES (?, ?)", rows)
            self._connection.execute("COMMIT")

    fill = update_together = update_many

    def remove(self, uid: str) -> None:
        with self._lock:
            self._connection.execute("DELETE FROM claims WHERE uid = ?", (uid,))

    def load(self) -> Sized:
        rows = self._connection.execute("SELECT uid, data FROM claims")
        return {uid: orjson.loads(data) for uid, data in rows}

    def close(self) -> None:
        self._connection.close()


class KubeletsWay:
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

    def update(self, state: ClaimInfoState) -> None:
        self.update_many([state])

    def update_many(self, states: Iterable[ClaimInfoState]) -> None:
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
        descriptor = os.open(".temp", CREATE, 0o600, dir_fd=self._directory)
        os.write(descriptor, blob)
        os.fsync(descriptor)
        os.close(descriptor)
        os.rename(".temp", "dra_manager_state", src_dir_fd=self._directory, dst_dir_fd=self._directory)

    def load(self) -> Sized:
        with open(
            "dra_manager_state", "rb", opener=lambda name, flags: os.open(name, flags, dir_fd=self._directory)
        ) as file:
            outer = orjson.loads(file.read())
        assert zlib.crc32(outer["Data"].encode()) == outer["Checksum"]
        claims = orjson.loads(outer["Data"])["ClaimInfoStateList"]
        self._claims = {claim["claim_uid"]: claim for claim in claims}
        return self._claims

    def close(self) -> None:
        os.close(self._directory)


def everybody() -> list[Contender]:
    return [Ours(), Floor(), Sqlite(), KubeletsWay()]
