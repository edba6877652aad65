"""A folder in a checkpoint's place. No file can replace one by a rename, so the two names change files.

    rename    .tmp-N -> .tmp-M-replaced-key              the new checkpoint, which is on the disk already
    renameat2 .tmp-M-replaced-key <-> key.json           the commit
    rename    .tmp-M-replaced-key -> .quarantine/...     the folder
    fsync     .quarantine

So the folder leaves its place only for a checkpoint that is ready. Where names cannot be exchanged, it is renamed
first, and for a moment the name stands for nothing: an owner that opens such a directory puts the folder back
(leftovers.py). Whatever fails is undone.
"""

from __future__ import annotations

from .._format.names import REPLACED, SUFFIX
from .directory import Directory
from .quarantine import Quarantine
from .system import CANNOT_EXCHANGE, exchange


def replace_folder(directory: Directory, temp: str, key: str, quarantine: Quarantine) -> None:
    """The folder under the key's name is in quarantine then, and what was `temp` has the name."""
    new = directory.new_temp(REPLACED + key)
    directory.rename(temp, new)
    try:
        folder = _trade_places(directory, new, key)
        try:
            quarantine.move_folder(folder, key)
        except BaseException:
            new = _trade_places(directory, folder, key)
            raise
    except BaseException:
        directory.discard(new)
        raise


def _trade_places(directory: Directory, other: str, key: str) -> str:
    """`other` has the key's name then; returns where that which had it is."""
    name = key + SUFFIX
    try:
        exchange(directory.descriptor, other, name)
    except OSError as error:
        if error.errno not in CANNOT_EXCHANGE:
            raise
    else:
        return other
    aside = directory.new_temp(REPLACED + key)
    directory.rename(name, aside)
    try:
        directory.sync()  # where it is now must be on the disk before anything has its name
        directory.rename(other, name)
    except BaseException:
        directory.rename(aside, name)
        raise
    return aside
