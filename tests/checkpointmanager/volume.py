"""A real file system on a loop device whose power can be cut. Needs root, mkfs and loop mounts."""

from __future__ import annotations

import fcntl
import os
import shutil
import struct
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from .processes import until

IMAGE_BYTES = {"ext4": 32 << 20, "xfs": 300 << 20}  # xfs refuses less; the images are sparse
FORCE = {"ext4": "-F", "xfs": "-f"}
MAKE = {"ext4-inline": ("-O", "inline_data", "-I", "1024"), "ext4-no-journal": ("-O", "^has_journal")}
MOUNT = {"ext4-writeback": ",data=writeback", "ext4-journal": ",data=journal"}
FS_IOC_SHUTDOWN = 0x8004587D
NO_LOG_FLUSH = 2  # loses what neither a sync nor the journal has written to the disk, as a power loss does


class VolumeUnavailable(Exception):
    """This machine cannot make a volume; the text says why."""


class Volume:
    """Mounted from the beginning; see `mounted` below."""

    def __init__(self, folder: Path, kind: str = "ext4") -> None:
        """`kind` is a file system, with a word for how it is made or mounted after a hyphen."""
        file_system = kind.partition("-")[0]
        self._file_system = file_system
        self._options = "loop" + MOUNT.get(kind, "")
        self._mounted = False
        mkfs = f"mkfs.{file_system}"
        if os.geteuid() != 0:
            raise VolumeUnavailable("a power cut needs root")
        for tool in (mkfs, "mount", "umount"):
            if not shutil.which(tool):
                raise VolumeUnavailable(f"a power cut needs {tool}")
        self._image = folder / "image"
        self.path = folder / "volume"
        self.path.mkdir()
        with self._image.open("wb") as image:
            image.truncate(IMAGE_BYTES[file_system])
        self._run(mkfs, "-q", FORCE[file_system], *MAKE.get(kind, ()), str(self._image))
        self.mount()

    def mount(self) -> None:
        """Also what happens after a power cut: the kernel replays the journal."""
        self._run("mount", "-t", self._file_system, "-o", self._options, str(self._image), str(self.path))
        self._mounted = True  # remembered, because xfs answers nothing when the power is off

    def cut(self) -> None:
        """From now on nothing reaches the disk."""
        descriptor = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            fcntl.ioctl(descriptor, FS_IOC_SHUTDOWN, struct.pack("I", NO_LOG_FLUSH))
        finally:
            os.close(descriptor)

    def unmount(self) -> None:
        """Also releases the loop device. The kernel may need a moment to close the files of a dead process."""
        if self._mounted:
            until(lambda: subprocess.run(["umount", str(self.path)], capture_output=True, check=False).returncode == 0)
            self._mounted = False

    def _run(self, *command: str) -> None:
        done = subprocess.run(command, capture_output=True, check=False, text=True)
        if done.returncode:
            raise VolumeUnavailable(f"a power cut needs {command[0]}, which says: {done.stderr.strip()}")


@contextmanager
def mounted(folder: Path, kind: str = "ext4") -> Iterator[Volume]:
    """Skips the test if this machine cannot make a volume."""
    try:
        volume = Volume(folder, kind)
    except VolumeUnavailable as why:
        pytest.skip(str(why))
    try:
        yield volume
    finally:
        volume.unmount()
