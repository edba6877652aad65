"""Small file systems of our own that can be filled up. Need root."""

from __future__ import annotations

import os
import shutil
import subprocess
from contextlib import suppress
from pathlib import Path

from ..checkpointmanager.processes import until
from ..checkpointmanager.volume import Volume, VolumeUnavailable

FILLER = ".filler"
PIECES = (1 << 20, 1 << 16, 1 << 12, 512)


class Tmpfs:
    """In memory, with limits for bytes and inodes."""

    def __init__(self, folder: Path, *, size: str = "1m", inodes: int = 1000) -> None:
        if os.geteuid() != 0:
            raise VolumeUnavailable("mounting a file system needs root")
        if not shutil.which("mount"):
            raise VolumeUnavailable("mounting a file system needs mount")
        self.path = folder / "tmpfs"
        self.path.mkdir()
        options = f"size={size},nr_inodes={inodes},mode=0700"
        mount = ["mount", "-t", "tmpfs", "-o", options, "checkpoints", str(self.path)]
        done = subprocess.run(mount, capture_output=True, check=False, text=True)
        if done.returncode:
            raise VolumeUnavailable(f"mount says: {done.stderr.strip()}")

    def unmount(self) -> None:
        if self.path.is_mount():
            until(lambda: subprocess.run(["umount", str(self.path)], capture_output=True, check=False).returncode == 0)


Disk = Tmpfs | Volume


def fill(disk: Disk) -> None:
    """Until not a single byte more fits."""
    with open(disk.path / FILLER, "ab", buffering=0) as filler:
        for size in PIECES:
            with suppress(OSError):
                while filler.write(b"\0" * size) == size:
                    pass
        os.fsync(filler.fileno())


def use_up_inodes(disk: Disk) -> None:
    """Until no more files can be made."""
    folder = disk.path / FILLER
    folder.mkdir()
    with suppress(OSError):
        for number in range(1 << 16):
            (folder / str(number)).touch()


def give_back(disk: Disk) -> None:
    filler = disk.path / FILLER
    shutil.rmtree(filler) if filler.is_dir() else filler.unlink()


def remount(disk: Disk, *options: str) -> None:
    subprocess.run(["mount", "-o", ",".join(("remount", *options)), str(disk.path)], check=True, capture_output=True)
