"""Finds the directories with state of agents, kubelet and drivers below a parent.

It follows no link and enters only mounts of local disks: the server of a dead mount never answers. It recognises a
directory by names that only the library makes, by how its files begin, or by kubelet's well-known names.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from dataclasses import dataclass, field

from checkpointmanager.format import LOCK, MAX_LOCK_TEXT_BYTES, PREVIOUS, QUARANTINE, SUFFIX, LockOwner

from ..registry import DEVICE_PLUGINS, KNOWN_NAMES, KUBELET_NAMES, inspect, kind_at
from ..screens import phrases
from . import disk
from .damage import looks_ours
from .disk import mounts_below
from .examine import key_of

SAMPLE = 16  # files of a directory that are read to see whether they are checkpoints
# The layers of container images: hundreds of thousands of directories, and never state.
IMAGE_LAYERS = frozenset({"overlay2", "overlay", "io.containerd.snapshotter.v1.overlayfs"})
LOCAL = frozenset({"ext2", "ext3", "ext4", "xfs", "btrfs", "f2fs", "zfs", "bcachefs", "jfs", "reiserfs", "vfat"})


@dataclass(slots=True)
class Search:
    """What was found below one parent, and what could not be entered."""

    parent: str
    found: list[str] = field(default_factory=list)
    searched: int = 0
    layers: int = 0  # folders of image layers, skipped
    mounts: list[str] = field(default_factory=list)  # skipped
    closed: list[tuple[str, OSError]] = field(default_factory=list)  # could not be entered

    def __str__(self) -> str:
        """A sentence: what was searched, and what was skipped on purpose."""
        where = f"searched {phrases.count(self.searched, 'directory', 'directories')} in {phrases.shown(self.parent)}"
        if self.mounts:
            mounts = phrases.count(len(self.mounts), "mount")
            where += f"; {mounts} other than local disks skipped ({phrases.some(self.mounts)})"
        if self.layers:
            where += f"; {phrases.count(self.layers, 'folder')} of image layers skipped"
        return where


def search(parent: str, step: Callable[[], object] = lambda: None) -> Search:
    """Everything below `parent`, including itself, in the order of paths. `step` is called for each directory."""
    done = Search(parent)
    mounted = mounts_below(parent)
    waiting = [parent]
    while waiting:
        path = waiting.pop()
        try:
            names, folders = _entries(path)
        except OSError as error:
            if path == parent or error.errno != errno.ENOENT:  # otherwise it was removed meanwhile
                done.closed.append((path, error))
            continue
        done.searched += 1
        step()
        if _is_state(path, names):
            done.found.append(path)
            of_kubelet = any(name in KUBELET_NAMES for name in names)
            folders = [name for name in folders if not (of_kubelet and name == DEVICE_PLUGINS)]  # scanned with it
        for name in folders:
            below = os.path.join(path, name)
            kind = mounted.get(os.path.abspath(below))
            if kind is not None and kind not in LOCAL:
                done.mounts.append(below)
            elif name in IMAGE_LAYERS:
                done.layers += 1
            elif name != QUARANTINE:
                waiting.append(below)
    done.found.sort()
    return done


def _entries(path: str) -> tuple[list[str], list[str]]:
    names, folders = [], []
    descriptor = disk.open_folder(path)
    try:
        with os.scandir(descriptor) as entries:
            for entry in entries:
                names.append(entry.name)
                if entry.is_dir(follow_symlinks=False):
                    folders.append(entry.name)
    finally:
        os.close(descriptor)
    return names, folders


def _is_state(path: str, names: list[str]) -> bool:
    if any(kind_at(os.path.join(path, name)) for name in KNOWN_NAMES.intersection(names)):
        return True
    if any(name == QUARANTINE or name.startswith(PREVIOUS) for name in names):
        return True
    if LOCK in names and LockOwner.parse(disk.blob_of(os.path.join(path, LOCK))[:MAX_LOCK_TEXT_BYTES]):
        return True
    documents = sorted(name for name in names if name.endswith(SUFFIX) and key_of(name))
    return any(_is_known(os.path.join(path, name)) for name in documents[:SAMPLE])


def _is_known(path: str) -> bool:
    blob = disk.blob_of(path)
    if looks_ours(blob) and b'"readable_by"' in blob:  # other programs have checksums, too
        return True
    found = inspect(blob, phrases.base_name(path)) if blob[:12] == b'{"checksum":' else None
    return found is not None and not found.of_kubelet
