"""The bare calls of our journal, no library: what the protocol costs without schemas, key locks and events.

It has the normal path and nothing else: no recovery, no failures. Two threads must not change the same key at once.

    stage      a temp file for every put: create, write, close; no sync
    commit     append the record, fdatasync the journal; one sync for all who wait
    apply      link the old file to .previous-, rename the temp file into place; a removal unlinks both
    settle     when the journal is full or many keys are dirty: fsync their files and the directory, then a new journal
"""

from __future__ import annotations

import itertools
import os
import threading
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson
from xxhash import xxh3_64_hexdigest

from draState import ClaimInfoState

from .claims import as_json
from .files import CREATE, Floor

BARE = "journal, bare"
BLOCK = 4096  # groups end at a block, so that no acknowledged bytes are written again
SMALLEST, LARGEST = 256 << 10, 4 << 20  # bytes of a journal
DIRTY = 256  # keys
AT_ONCE = 4  # syncs of a settle


@dataclass
class Group:
    """Changes that share one sync."""

    records: list[bytes] = field(default_factory=list)
    names: set[str] = field(default_factory=set)
    members: int = 0
    committed: bool = False


class BareJournal(Floor):
    name = BARE
    settings = f"previous generation kept; journal of {SMALLEST >> 10} KiB to {LARGEST >> 20} MiB, {DIRTY} dirty keys"

    def open(self, directory: Path) -> None:
        super().open(directory)
        self._counter = itertools.count()
        self._syncing = ThreadPoolExecutor(AT_ONCE)
        self._state = threading.Condition()  # guards the five below
        self._group = Group()
        self._leading = False
        self._applying = 0  # threads between commit and the end of apply
        self._dirty: set[str] = set()
        self._size = SMALLEST
        self._journal = self._new_journal(SMALLEST)

    def update(self, state: ClaimInfoState) -> None:
        self.update_many([state])

    def update_many(self, states: Iterable[ClaimInfoState]) -> None:
        """Many records, one sync."""
        blobs = _checkpoints(states)
        self._change(blobs, [_sealed({"record": 1, "changes": [blob.decode()]}) for blob in blobs.values()])

    def update_together(self, states: Iterable[ClaimInfoState]) -> None:
        """One record, whole or not there."""
        blobs = _checkpoints(states)
        self._change(blobs, [_sealed({"record": 1, "changes": [blob.decode() for blob in blobs.values()]})])

    def remove(self, uid: str) -> None:
        name = f"{uid}.json"
        self._commit([_sealed({"record": 1, "changes": [{"removed": uid}]})], [name])
        os.unlink(name, dir_fd=self._directory)
        with suppress(FileNotFoundError):
            os.unlink(f".previous-{name}", dir_fd=self._directory)
        self._applied()

    def close(self) -> None:
        self._settle()
        os.close(self._journal)
        os.close(self._new_journal(0))
        os.unlink(".journal", dir_fd=self._directory)
        self._syncing.shutdown()
        super().close()

    def _change(self, blobs: dict[str, bytes], records: list[bytes]) -> None:
        staged = {name: self._stage(blob) for name, blob in blobs.items()}
        self._commit(records, staged)
        for name, temp in staged.items():
            link = self._temp()
            with suppress(FileNotFoundError):
                os.link(name, link, src_dir_fd=self._directory, dst_dir_fd=self._directory)
                self._rename(link, f".previous-{name}")
            self._rename(temp, name)
        self._applied()

    def _stage(self, blob: bytes) -> str:
        temp = self._temp()
        descriptor = os.open(temp, CREATE, 0o600, dir_fd=self._directory)
        os.write(descriptor, blob)
        os.close(descriptor)
        return temp

    def _commit(self, records: list[bytes], names: Iterable[str]) -> None:
        """Return when the records are synced, by this thread or by the one that leads its group."""
        with self._state:
            group = self._group
            group.records += records
            group.names.update(names)
            group.members += 1
            while self._leading and not group.committed:
                self._state.wait()
            if group.committed:
                return
            self._leading = True
            self._group = Group()
        self._append(group)
        with self._state:
            group.committed = True
            self._applying += group.members
            self._dirty |= group.names
            self._leading = False
            self._state.notify_all()

    def _append(self, group: Group) -> None:
        blob = b"".join(group.records)
        blob += b"\n" * (-len(blob) % BLOCK)
        if os.lseek(self._journal, 0, os.SEEK_CUR) + len(blob) > self._size or len(self._dirty) >= DIRTY:
            self._settle()
            os.close(self._journal)
            self._size = max(min(2 * self._size, LARGEST), BLOCK + len(blob))
            self._journal = self._new_journal(self._size)
        os.write(self._journal, blob)
        os.fdatasync(self._journal)

    def _applied(self) -> None:
        with self._state:
            self._applying -= 1
            self._state.notify_all()

    def _settle(self) -> None:
        """Make the applied files durable; only the thread that leads, or closes, comes here."""
        with self._state:
            while self._applying:
                self._state.wait()
        list(self._syncing.map(self._sync, self._dirty))
        os.fsync(self._directory)
        self._dirty = set()

    def _sync(self, name: str) -> None:
        with suppress(FileNotFoundError):  # removed
            descriptor = os.open(name, os.O_RDONLY, dir_fd=self._directory)
            os.fsync(descriptor)
            os.close(descriptor)

    def _new_journal(self, size: int) -> int:
        temp = self._temp()
        descriptor = os.open(temp, CREATE, 0o600, dir_fd=self._directory)
        os.write(descriptor, _sealed({"journal": 1}).ljust(size, b"\n"))  # blanks: later writes allocate nothing
        os.fsync(descriptor)
        self._rename(temp, ".journal")
        os.fsync(self._directory)
        os.lseek(descriptor, BLOCK, os.SEEK_SET)
        return descriptor

    def _temp(self) -> str:
        return f".tmp-{next(self._counter)}"

    def _rename(self, old: str, new: str) -> None:
        os.rename(old, new, src_dir_fd=self._directory, dst_dir_fd=self._directory)


def _checkpoints(states: Iterable[ClaimInfoState]) -> dict[str, bytes]:
    return {f"{state.claim_uid}.json": _sealed({"data": as_json(state)}) for state in states}


def _sealed(content: dict[str, Any]) -> bytes:
    """One line that begins with the checksum of the rest."""
    rest = orjson.dumps(content)[1:] + b"\n"
    return b'{"checksum":"xxh3:' + xxh3_64_hexdigest(rest).encode() + b'",' + rest
