"""Files without a library: the floor, and kubelet's way."""

from __future__ import annotations

import gc
import os
import threading
import zlib
from collections.abc import Iterable, Sized
from pathlib import Path
from typing import Any

import orjson
from xxhash import xxh3_64_hexdigest

from draState import ClaimInfoState

from .claims import as_json

CREATE = os.O_WRONLY | os.O_CREAT | os.O_EXCL
FLOOR = "floor"
KUBELET = "kubelet's way"


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
