"""Where the benchmark writes: a file system on which the library waits for one sync, made for the run if necessary."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple

from checkpointmanager import CheckpointManager, FileStore
from checkpointmanager._filestore.system import file_system_of

TOOLS = ("mkfs.ext4", "mount", "umount")
BYTES_PER_INODE = 8192  # half of the default: most files here are small
UNMOUNT_SECONDS = 20
TWO_SYNCS = "TWO syncs per update, so not the default way"


class Place(NamedTuple):
    """A folder to measure in, and what figures from that folder mean."""

    folder: Path
    disk: Path  # the folder, or the folder that holds its image
    note: str


@contextmanager
def place(directory: Path | None, *, image_bytes: int, as_it_is: bool = False) -> Iterator[Place]:
    """A new folder below `directory` (by default TMPDIR), removed at the end.

    If the library waits for two syncs there, this makes an ext4 file system in an image of `image_bytes` there, which
    needs root. With `as_it_is`, it makes none.
    """
    with ExitStack() as stack:
        outer = Path(tempfile.mkdtemp(prefix="bench-", dir=directory))
        stack.callback(shutil.rmtree, outer)
        file_system = file_system_of(os.stat(outer).st_dev) or "unknown file system"
        if waits_once(outer / "probe"):
            yield Place(outer, outer, f"{file_system}, as it is: one sync per update")
            return
        refusal = "no image was wanted" if as_it_is else _missing()
        if not refusal:
            try:
                mounted = stack.enter_context(_image(outer, image_bytes))
            except (OSError, subprocess.CalledProcessError) as error:
                refusal = f"no ext4 image could be made: {error}"
            else:
                syncs = "one sync per update" if waits_once(mounted / "probe") else TWO_SYNCS
                yield Place(mounted, outer, f"ext4 on a loop device, made for this run on {file_system}: {syncs}")
                return
        yield Place(outer, outer, f"{file_system}, as it is ({refusal}): {TWO_SYNCS}")


def waits_once(folder: Path) -> bool:
    """True if the library, at its defaults, updates over spares here; this tries it."""
    store = FileStore(folder)
    with CheckpointManager(store) as manager:
        for number in range(3):  # the third write is the first that could leave a spare
            manager.create_checkpoint("probe", number)
        return store._spares.works and store._spares._marker.is_set


def _missing() -> str:
    if os.geteuid() != 0:
        return "an ext4 image needs root"
    absent = [tool for tool in TOOLS if not shutil.which(tool)]
    return f"an ext4 image needs {', '.join(absent)}" if absent else ""


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
