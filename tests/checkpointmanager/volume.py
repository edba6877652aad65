"""Real file systems that a test mounts for itself. The power of those on a loop device can be cut. Needs root."""

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

IMAGE_BYTES = {"ext4": 32 << 20, "btrfs": 128 << 20, "xfs": 300 << 20}  # the last two refuse less; images are sparse
FORCE = {"ext4": "-F", "btrfs": "-f", "xfs": "-f"}
MAKE: dict[str, tuple[str, ...]] = {
    "ext4-inline": ("-O", "inline_data", "-I", "1024"),
    "ext4-no-journal": ("-O", "^has_journal"),
    "ext4-few-inodes": ("-N", "256"),
}
MOUNT = {"ext4-writeback": ",data=writeback", "ext4-journal": ",data=journal"}
KINDS = ("ext4", "ext4-no-journal", "xfs", "btrfs", "tmpfs", "overlay")  # what directories of agents are on
FS_IOC_SHUTDOWN = 0x8004587D
NO_LOG_FLUSH = 2  # loses what neither a sync nor the journal has written to the disk, as a power loss does


class VolumeUnavailable(Exception):
    """This machine cannot make a volume; the text says why."""


class Mount:
    """A file system without a disk of its own. Mounted from the beginning; see `mounted` below."""

    def __init__(self, folder: Path, kind: str, source: str, options: str) -> None:
        if os.geteuid() != 0:
            raise VolumeUnavailable("mounting a file system needs root")
        self._command = ("mount", "-t", kind, "-o", options, source)
        self._mounted = False
        self.path = folder / "volume"
        self.path.mkdir()
        self.mount()

    def mount(self) -> None:
        self._run(*self._command, str(self.path))
        self._mounted = True  # remembered, because xfs answers nothing when the power is off

    def unmount(self) -> None:
        """Also releases the loop device. The kernel may need a moment to close the files of a dead process."""
        if self._mounted:
            until(lambda: subprocess.run(["umount", str(self.path)], capture_output=True, check=False).returncode == 0)
            self._mounted = False

    def _run(self, *command: str) -> None:
        if not shutil.which(command[0]):
            raise VolumeUnavailable(f"this file system needs {command[0]}")
        done = subprocess.run(command, capture_output=True, check=False, text=True)
        if done.returncode:
            raise VolumeUnavailable(f"{command[0]} says: {done.stderr.strip()}")


class Tmpfs(Mount):
    """In memory, with limits for bytes and inodes."""

    def __init__(self, folder: Path, *, size: str = "64m", inodes: int = 10_000) -> None:
        super().__init__(folder, "tmpfs", "checkpoints", f"size={size},nr_inodes={inodes},mode=0700")


class Overlay(Mount):
    """A writable layer over an empty one, as in a container. Both are on a tmpfs: an overlay may not lie on another."""

    def __init__(self, folder: Path) -> None:
        self._below = Tmpfs(folder)
        layers = {"lowerdir": "low", "upperdir": "up", "workdir": "work"}
        for name in layers.values():
            (self._below.path / name).mkdir(mode=0o700)
        (folder / "over").mkdir()
        options = ",".join(f"{option}={self._below.path / name}" for option, name in layers.items())
        try:
            super().__init__(folder / "over", "overlay", "overlay", options)
        except VolumeUnavailable:
            self._below.unmount()
            raise

    def unmount(self) -> None:
        super().unmount()
        self._below.unmount()


class Volume(Mount):
    """An image on a loop device, whose power can be cut."""

    def __init__(self, folder: Path, kind: str = "ext4") -> None:
        """`kind` is a file system, with a word for how it is made or mounted after a hyphen."""
        file_system = kind.partition("-")[0]
        image = folder / "image"
        with image.open("wb") as file:
            file.truncate(IMAGE_BYTES[file_system])
        self._run(f"mkfs.{file_system}", "-q", FORCE[file_system], *MAKE.get(kind, ()), str(image))
        super().__init__(folder, file_system, str(image), "loop" + MOUNT.get(kind, ""))

    def cut(self) -> None:
        """From now on nothing reaches the disk, until the volume is unmounted and mounted again."""
        descriptor = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            fcntl.ioctl(descriptor, FS_IOC_SHUTDOWN, struct.pack("I", NO_LOG_FLUSH))
        finally:
            os.close(descriptor)

    def remount(self) -> None:
        """What happens after a power cut: the kernel replays the journal of the file system."""
        self.unmount()
        self.mount()


def new_mount(folder: Path, kind: str) -> Mount:
    if kind == "tmpfs":
        return Tmpfs(folder)
    return Overlay(folder) if kind == "overlay" else Volume(folder, kind)


@contextmanager
def mounted(folder: Path, kind: str = "ext4") -> Iterator[Mount]:
    """Skips the test if this machine cannot mount it."""
    try:
        mount = new_mount(folder, kind)
    except VolumeUnavailable as why:
        pytest.skip(f"{kind}: {why}")
    try:
        yield mount
    finally:
        mount.unmount()


@contextmanager
def mounted_volume(folder: Path, kind: str = "ext4") -> Iterator[Volume]:
    """The same for one whose power can be cut."""
    with mounted(folder, kind) as mount:
        assert isinstance(mount, Volume)
        yield mount
