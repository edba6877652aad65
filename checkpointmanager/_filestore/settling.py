"""Makes the files of committed changes durable, so that the journal is no longer needed."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial

from ..format import Change, current_name, previous_name, seal_removal
from .directory import Directory
from .sidebyside import side_by_side

SYNC_THREADS = 4  # the caller's among them: eight were slower


def find_blocked(directory: Directory, changes: Iterable[Change]) -> list[Change]:
    """The changes whose names have something that is not a file, such as a folder or a link: put there by hand."""
    return [change for change in changes if directory.has_no_file(current_name(change.key))]


def sync_files(directory: Directory, changes: Iterable[Change]) -> None:
    """Sync what lies under the names."""
    names = [current_name(change.key) for change in changes if change.blob is not None]
    side_by_side(directory.sync_file, names, SYNC_THREADS)


def rewrite_files(directory: Directory, changes: Iterable[Change]) -> None:
    """Write everything anew, from the committed bytes.

    The kernel forgets a failed sync, so what lies there may never reach the disk. New bytes and new names must. The
    names of a removed checkpoint are made again, as a sealed removal, so that they can be removed again.
    """
    todo = list(changes)
    blobs = [seal_removal(change) if change.blob is None else change.blob for change in todo]
    temps = side_by_side(partial(directory.write_temp, synced=True), blobs, SYNC_THREADS)
    for change, temp in zip(todo, temps, strict=True):
        directory.rename(temp, current_name(change.key))
        if change.blob is None:
            _remove_again(directory, change.key)


def _remove_again(directory: Directory, key: str) -> None:
    """Also the previous generation: one that came back would be newer than a checkpoint that is created afterwards."""
    temp = directory.new_temp()
    directory.link_or_copy(current_name(key), temp)
    try:
        directory.rename(temp, previous_name(key))
        directory.unlink(previous_name(key))
    except IsADirectoryError:  # then no file can come back
        directory.discard(temp)
    except OSError:
        directory.discard(temp)
        raise
    directory.unlink(current_name(key))
