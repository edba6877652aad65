"""A small disk that can be filled to the last byte, and freed again.

On pyfakefs, since here the disk itself must run out of room in the middle of a write; checkpointmanager.testing makes
single calls fail.
"""

from __future__ import annotations

from pathlib import Path

from pyfakefs.fake_filesystem import FakeFilesystem

BYTES = 1 << 20


class Disk:
    """Filled by another program's file, as on a node whose logs have grown."""

    def __init__(self, fs: FakeFilesystem) -> None:
        fs.set_disk_usage(BYTES)
        self._fs = fs
        self._logs = Path("/var/log.1")

    def fill(self, *, leaving: int = 0) -> None:
        _, _, free = self._fs.get_disk_usage()
        self._fs.create_file(self._logs, st_size=free - leaving)

    def free(self) -> None:
        self._logs.unlink()
