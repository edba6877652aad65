"""Files without a library: the system calls of the floor, of our two ways, and of the code that people write first."""

from __future__ import annotations

import fcntl
import os
import signal
import threading
from collections import defaultdict, deque
from collections.abc import Iterable, Sized
from contextlib import suppress
from pathlib import Path

import orjson
from xxhash import xxh3_64_hexdigest

from checkpointmanager._filestore.spares import SPARE_LIMIT
from checkpointmanager._filestore.system import exchange, fcntl_at_once
from checkpointmanager._gcpause import gc_paused

from .claims import as_json
from .contender import OneByOne, State

SPARE_BYTES = 1024  # every claim is padded to this size, so no spare ever changes its size


class Files(OneByOne):
    """One JSON file per claim, replaced by rename. With both syncs this is the floor."""

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
        os.write(descriptor, self._encode(state))
        if self._sync_file:
            os.fsync(descriptor)
        os.close(descriptor)
        self._replace(temp, name)
        if self._sync_directory:
            os.fsync(self._directory)

    def fill(self, states: Iterable[State]) -> None:
        syncs = self._sync_file, self._sync_directory
        self._sync_file = self._sync_directory = False
        self.update_many(states)
        self._sync_file, self._sync_directory = syncs

    def _encode(self, state: State) -> bytes:
        return orjson.dumps(as_json(state))

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


class BareClassic(Files):
    """The system calls of our classic way, no library: the floor, and the previous generation kept.

    Writers of one key wait for each other, as ours do.
    """

    def __init__(self, name: str) -> None:
        super().__init__(name, sync_file=True, sync_directory=True)
        self.settings = "previous generation kept, fsync of the file and of the directory"

    def open(self, directory: Path) -> None:
        super().open(directory)
        self._locks: defaultdict[str, threading.Lock] = defaultdict(threading.Lock)

    def update(self, state: State) -> None:
        with self._locks[state.claim_uid]:
            self._write(state)

    def _write(self, state: State) -> None:
        super().update(state)

    def _replace(self, temp: str, name: str) -> None:
        link = f"{temp}-link"
        with suppress(FileNotFoundError):
            os.link(name, link, src_dir_fd=self._directory, dst_dir_fd=self._directory)
            os.rename(link, f".previous-{name}", src_dir_fd=self._directory, dst_dir_fd=self._directory)
        super()._replace(temp, name)


class BareOneSync(BareClassic):
    """The system calls of our way over spares, as spares.py lists them, without the cost of our Python.

    All spares exist from the first update on. A claim's first two writes take the classic way, and so create the
    names that later writes exchange.
    """

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.settings = (
            "previous generation kept, fdatasync of a spare; a shared fsync of the directory frees the spares"
        )

    def open(self, directory: Path) -> None:
        super().open(directory)
        self._written: defaultdict[str, int] = defaultdict(int)
        self._free: deque[str] = deque()
        self._pending: deque[str] = deque()
        self._syncing = threading.Lock()

    def _write(self, state: State) -> None:
        uid = state.claim_uid
        self._written[uid] += 1
        if self._written[uid] <= 2:
            super()._write(state)
            return
        spare = self._take()
        descriptor = os.open(spare, os.O_WRONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=self._directory)
        os.fstat(descriptor)
        fcntl_at_once(descriptor, fcntl.F_SETSIG, signal.SIGURG)
        fcntl_at_once(descriptor, fcntl.F_SETLEASE, fcntl.F_WRLCK)
        fcntl_at_once(descriptor, fcntl.F_SETLEASE, fcntl.F_UNLCK)
        os.write(descriptor, self._encode(state))
        os.fdatasync(descriptor)
        os.close(descriptor)
        exchange(self._directory, spare, f"{uid}.json")
        exchange(self._directory, spare, f".previous-{uid}.json")
        self._pending.append(spare)

    def _encode(self, state: State) -> bytes:
        return super()._encode(state).ljust(SPARE_BYTES)

    def _take(self) -> str:
        while True:
            try:
                return self._free.popleft()
            except IndexError:
                self._free_spares()

    def _free_spares(self) -> None:
        """One sync of the directory serves all threads that wait for it."""
        with self._syncing:
            if self._free:
                return
            if not self._pending:
                self._make_spares()
            count = len(self._pending)
            os.fsync(self._directory)
            self._free.extend(self._pending.popleft() for _ in range(count))

    def _make_spares(self) -> None:
        for number in range(SPARE_LIMIT):
            spare = f".spare-{number}"
            descriptor = os.open(spare, os.O_WRONLY | os.O_CREAT, 0o600, dir_fd=self._directory)
            os.write(descriptor, bytes(SPARE_BYTES))
            os.fsync(descriptor)
            os.close(descriptor)
            self._pending.append(spare)
