"""Databases and database-like libraries, each at the settings at which it is durable, if it has such settings."""

from __future__ import annotations

import dbm.dumb
import shelve
import sqlite3
import threading
from collections.abc import Iterable, Sized
from pathlib import Path
from typing import Any

import diskcache
import lmdb
import orjson
import rocksdict

from .claims import as_json
from .contender import OneByOne, State


class Sqlite:
    """The standard library's sqlite3. One connection for all threads: one each is slower, they wait by sleeping."""

    durable = True

    def __init__(self, journal: str) -> None:
        self.name = f"sqlite3 {journal}"
        self.settings = f"journal_mode={journal}, synchronous=FULL, one connection"
        self._journal = journal

    def open(self, directory: Path) -> None:
        self._lock = threading.Lock()
        self._connection = sqlite3.connect(directory / "claims.db", isolation_level=None, check_same_thread=False)
        self._connection.execute(f"PRAGMA journal_mode={self._journal}")
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
        self._env = lmdb.open(str(directory), map_size=1 << 30)

    def update(self, state: State) -> None:
        with self._env.begin(write=True) as transaction:
            transaction.put(state.claim_uid.encode(), orjson.dumps(as_json(state)))

    def update_many(self, states: Iterable[State]) -> None:
        with self._env.begin(write=True) as transaction:
            for state in states:
                transaction.put(state.claim_uid.encode(), orjson.dumps(as_json(state)))

    def remove(self, uid: str) -> None:
        with self._env.begin(write=True) as transaction:
            transaction.delete(uid.encode())

    def load(self) -> Sized:
        with self._env.begin() as transaction:
            return {key: orjson.loads(data) for key, data in transaction.cursor()}

    def close(self) -> None:
        self._env.close()


class Rocks(OneByOne):
    name = "RocksDB"
    durable = True
    settings = "rocksdict, WriteOptions.sync=True"

    def open(self, directory: Path) -> None:
        self._db = rocksdict.Rdict(str(directory / "rocks"), rocksdict.Options(raw_mode=True))
        options = rocksdict.WriteOptions()
        options.sync = True
        self._db.set_write_options(options)

    def update(self, state: State) -> None:
        self._db[state.claim_uid.encode()] = orjson.dumps(as_json(state))

    def update_many(self, states: Iterable[State]) -> None:
        batch = rocksdict.WriteBatch(raw_mode=True)
        for state in states:
            batch.put(state.claim_uid.encode(), orjson.dumps(as_json(state)))
        self._db.write(batch)

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
        self._cache = diskcache.Cache(str(directory), sqlite_synchronous=2, eviction_policy="none", timeout=60)

    def update(self, state: State) -> None:
        self._cache.set(state.claim_uid, orjson.dumps(as_json(state)), retry=True)

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

    def remove(self, uid: str) -> None:
        with self._lock:
            del self._shelf[uid]
            self._shelf.sync()

    def load(self) -> Sized:
        return dict(self._shelf)

    def close(self) -> None:
        self._shelf.close()
