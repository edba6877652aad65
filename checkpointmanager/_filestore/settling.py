"""Makes the files of committed changes durable, so that the journal is no longer needed."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial

from .._format.journal import Change, seal_removal
from .._format.names import current_name, previous_name
from .directory import Directory
from .sidebyside import side_by_side

SYNC_THREADS = 4  # the caller's among them: eight were slower


def sync_files(directory: Directory, changes: Iterable[Change]) -> None:
    """Sync what lies under the names."""
    names = [current_name(change.key) for change in changes if change.blob is not None]
    side_by_side(directory.sync_file, names, SYNC_THREADS)


def rewrite_files(directory: Directory, changes: Iterable[Change]) -> list[Change]:
    """Write everything anew, from the committed bytes; returns the changes whose names a folder blocks.

    The kernel forgets a failed sync, so what lies there may never reach the disk. New bytes and new names must. The
    names of a removed checkpoint are made again, as a sealed removal, so that they can be removed again.
    """
    todo = list(changes)
    blobs = [seal_removal(change) if change.blob is None else change.blob for change in todo]
    temps = side_by_side(partial(directory.write_temp, synced=True), blobs, SYNC_THREADS)
    blocked: list[Change] = []
    for change, temp in zip(todo, temps, strict=True):
        try:
            directory.rename(temp, current_name(change.key))
        except IsADirectoryError:
            directory.discard(temp)
            blocked.append(change)
            continue
        if change.blob is None:
            _remove_again(directory, change.key)
    return blocked


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
