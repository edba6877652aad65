"""Databases and database-like libraries, each at the settings at which it is durable, if it has such settings.

Three come from the extra [bench]; one that is not installed takes no part.
"""

from __future__ import annotations

import dbm.dumb
import shelve
import sqlite3
import threading
from collections.abc import Iterable, Sized
from functools import partial
from pathlib import Path
from typing import Any

import orjson

from .claims import as_json
from .contender import OneByOne, State

PACKAGES = {"LMDB": "lmdb", "RocksDB": "rocksdict", "diskcache": "diskcache"}  # by contender


class Sqlite:
    """The standard library's sqlite3. All threads share a connection: separate ones sleep to wait, which is slower."""

    name = "sqlite3"
    durable = True
    settings = "journal_mode=WAL, synchronous=FULL, one connection"

    def open(self, directory: Path) -> None:
        self._lock = threading.Lock()
        self._connection = sqlite3.connect(directory / "claims.db", isolation_level=None, check_same_thread=False)
        self._connection.execute("PRAGMA journal_mode=WAL")
        self._connection.execute("PRAGMA synchronous=FULL")
        self._connection.execute("CREATE TABLE IF NOT EXISTS claims (uid TEXT PRIMARY KEY, data BLOB)")

    def update(self, state: State) -> None:
        row = (state.claim_uid, orjson.dumps(as_json(state)))
        with self._lock:
            self._connection.execute("REPLACE INTO claims VALUES (?, ?)", row)

    def update_many(self, states: Iterable[State]) -> None:
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


class Lmdb:
    name = "LMDB"
    durable = True
    settings = "sync=True"

    def open(self, directory: Path) -> None:
        import lmdb  # noqa: PLC0415

        self._env = lmdb.open(str(directory), map_size=1 << 30)

    def update(self, state: State) -> None:
        with self._env.begin(write=True) as transaction:
            transaction.put(state.claim_uid.encode(), orjson.dumps(as_json(state)))

    def update_many(self, states: Iterable[State]) -> None:
        with self._env.begin(write=True) as transaction:
            for state in states:
                transaction.put(state.claim_uid.encode(), orjson.dumps(as_json(state)))

    fill = update_together = update_many

    def remove(self, uid: str) -> None:
        with self._env.begin(write=True) as transaction:
            transaction.delete(uid.encode())

    def load(self) -> Sized:
        with self._env.begin() as transaction:
            return {key: orjson.loads(data) for key, data in transaction.cursor()}

    def close(self) -> None:
        self._env.close()


class Rocks:
    name = "RocksDB"
    durable = True
    settings = "rocksdict, WriteOptions.sync=True"

    def open(self, directory: Path) -> None:
        import rocksdict  # noqa: PLC0415

        self._new_batch = partial(rocksdict.WriteBatch, raw_mode=True)
        self._db = rocksdict.Rdict(str(directory / "rocks"), rocksdict.Options(raw_mode=True))
        options = rocksdict.WriteOptions()
        options.sync = True
        self._db.set_write_options(options)

    def update(self, state: State) -> None:
        self._db[state.claim_uid.encode()] = orjson.dumps(as_json(state))

    def update_many(self, states: Iterable[State]) -> None:
        batch = self._new_batch()
        for state in states:
            batch.put(state.claim_uid.encode(), orjson.dumps(as_json(state)))
        self._db.write(batch)

    fill = update_together = update_many

    def remove(self, uid: str) -> None:
        del self._db[uid.encode()]

    def load(self) -> Sized:
        return {key: orjson.loads(data) for key, data in self._db.items()}

    def close(self) -> None:
        self._db.close()


class Diskcache(OneByOne):
    name = "diskcache"
    durable = True
    settings = "sqlite_synchronous=FULL, eviction_policy=none"

    def open(self, directory: Path) -> None:
        import diskcache  # noqa: PLC0415

        self._cache = diskcache.Cache(str(directory), sqlite_synchronous=2, eviction_policy="none", timeout=60)

    def update(self, state: State) -> None:
        self._cache.set(state.claim_uid, orjson.dumps(as_json(state)), retry=True)

    def fill(self, states: Iterable[State]) -> None:
        with self._cache.transact(retry=True):
            self.update_many(states)

    def remove(self, uid: str) -> None:
        self._cache.delete(uid, retry=True)

    def load(self) -> Sized:
        return {key: orjson.loads(self._cache[key]) for key in self._cache.iterkeys()}

    def close(self) -> None:
        self._cache.close()


class Shelve(OneByOne):
    name = "shelve (dbm.dumb)"
    durable = False
    settings = "sync() after each change; neither it nor dbm.dumb calls fsync"

    def open(self, directory: Path) -> None:
        self._lock = threading.Lock()
        database: Any = dbm.dumb.open(str(directory / "claims"))  # noqa: SIM115  (closed by the shelf)
        self._shelf: shelve.Shelf[Any] = shelve.Shelf(database)

    def update(self, state: State) -> None:
        with self._lock:
            self._shelf[state.claim_uid] = as_json(state)
            self._shelf.sync()

    def fill(self, states: Iterable[State]) -> None:
        self._shelf.update({state.claim_uid: as_json(state) for state in states})
        self._shelf.sync()

    def remove(self, uid: str) -> None:
        with self._lock:
            del self._shelf[uid]
            self._shelf.sync()

    def load(self) -> Sized:
        return dict(self._shelf)

    def close(self) -> None:
        self._shelf.close()
