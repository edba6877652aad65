"""Where the benchmark runs and writes: as root, an ext4 file system with a journal, made for the run."""

from __future__ import annotations

import os
import platform
import shutil
import sqlite3
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import NamedTuple

TOOLS = ("mkfs.ext4", "mount", "umount")
BYTES_PER_INODE = 8192  # half of the default: most files here are small
UNMOUNT_SECONDS = 20


class Volume(NamedTuple):
    """A folder to measure in, and what it is on."""

    folder: Path
    note: str


def describe(where: Volume) -> dict[str, str]:
    """So that nobody compares figures of different machines by mistake."""
    return {
        "place": where.note,
        "python": platform.python_version(),
        "kernel": platform.release(),
        "machine": platform.machine(),
        "cores": str(os.cpu_count()),
        "load": f"{os.getloadavg()[0]:.1f}",
        "sqlite": sqlite3.sqlite_version,
        **{name: version(name) for name in ("checkpointmanager", "orjson", "xxhash", "filelock")},
    }


@contextmanager
def place(directory: Path | None, *, image_bytes: int) -> Iterator[Volume]:
    """A new folder, removed at the end: below `directory` as it is, or else on an ext4 image if that can be made."""
    with ExitStack() as stack:
        outer = Path(tempfile.mkdtemp(prefix="bench-", dir=directory))
        stack.callback(shutil.rmtree, outer)
        refusal = "as asked for" if directory else missing()
        if not refusal:
            try:
                mounted = stack.enter_context(_image(outer, image_bytes))
            except (OSError, subprocess.CalledProcessError) as error:
                refusal = f"no ext4 image could be made: {error}"
            else:
                yield Volume(mounted, "ext4 with a journal on a loop device, made for this run")
                return
        yield Volume(outer, f"{file_system_of(outer)} as it is ({refusal})")


def missing() -> str:
    """Why no image can be made, or ""."""
    if os.geteuid() != 0:
        return "an ext4 image needs root"
    absent = [tool for tool in TOOLS if not shutil.which(tool)]
    return f"an ext4 image needs {', '.join(absent)}" if absent else ""


def file_system_of(folder: Path) -> str:
    command = ["stat", "--file-system", "--format=%T", str(folder)]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


@contextmanager
def _image(outer: Path, size: int) -> Iterator[Path]:
    image, mounted = outer / "image", outer / "mounted"
    mounted.mkdir()
    with image.open("wb") as file:  # not sparse: the file system below would allocate while we measure
        for _ in range(size >> 20):
            file.write(bytes(1 << 20))
        os.fsync(file.fileno())
    at_once = "lazy_itable_init=0,lazy_journal_init=0,nodiscard"  # nothing is left for a kernel thread to do later
    subprocess.run(["mkfs.ext4", "-q", "-F", "-i", str(BYTES_PER_INODE), "-E", at_once, image], check=True)
    try:
        subprocess.run(["mount", "-t", "ext4", "-o", "loop", image, mounted], check=True)
        yield mounted
    finally:
        _unmount(mounted)


def _unmount(mounted: Path) -> None:
    """Keep trying for a while, because a child that was just killed may still have files open."""
    until = time.monotonic() + UNMOUNT_SECONDS
    while os.path.ismount(mounted):
        lazily = ["--lazy"] if time.monotonic() > until else []
        if subprocess.run(["umount", *lazily, str(mounted)], capture_output=True, check=False).returncode:
            time.sleep(0.1)
