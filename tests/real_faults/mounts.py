"""Small file systems of our own that can be filled up. Need root."""

from __future__ import annotations

import os
import shutil
import subprocess
from contextlib import suppress

from ..checkpointmanager.volume import Mount

FILLER = ".filler"
PIECES = (1 << 20, 1 << 16, 1 << 12, 512)


def fill(disk: Mount) -> None:
    """Until not a single byte more fits."""
    with open(disk.path / FILLER, "ab", buffering=0) as filler:
        for size in PIECES:
            with suppress(OSError):
                while filler.write(b"\0" * size) == size:
                    pass
        os.fsync(filler.fileno())


def use_up_inodes(disk: Mount) -> None:
    """Until no more files can be made."""
    folder = disk.path / FILLER
    folder.mkdir()
    with suppress(OSError):
        for number in range(1 << 16):
            (folder / str(number)).touch()


def give_back(disk: Mount) -> None:
    filler = disk.path / FILLER
    shutil.rmtree(filler) if filler.is_dir() else filler.unlink(missing_ok=True)


def remount(disk: Mount, *options: str) -> None:
    subprocess.run(["mount", "-o", ",".join(("remount", *options)), str(disk.path)], check=True, capture_output=True)
