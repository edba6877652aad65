"""All contenders: us, the bare calls that replace a file, and what people would use instead.

All store the same claims, and a change returns only when it is as durable as it will be. A contender that is not
durable at its settings says so in `durable`.
"""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterable, Sized
from pathlib import Path
from typing import Protocol

import orjson

from checkpointmanager import CheckpointManager
from draState import CLAIMS, ClaimInfoState

from .claims import as_json
from .files import Floor, KubeletsWay

OURS = "checkpointmanager"
SQLITE = "sqlite3"


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


def everybody() -> list[Contender]:
    return [Ours(), Floor(), Sqlite(), KubeletsWay()]
