"""Replaces a folder in a checkpoint's place. A rename cannot put a file over a folder, so the two are exchanged.

    rename    .tmp-N -> .tmp-M-replaced-key              the new checkpoint, already durable
    renameat2 .tmp-M-replaced-key <-> key.json           the commit
    rename    .tmp-M-replaced-key -> .quarantine/...     the folder
    fsync     .quarantine

So the folder leaves its place only for a checkpoint that is ready. Where names cannot be exchanged, the folder is
renamed first, and for a moment the name does not exist: an owner that opens such a directory puts the folder back
(leftovers.py). A failure undoes everything.
"""

from __future__ import annotations

from .._format.names import REPLACED, SUFFIX
from .directory import Directory
from .quarantine import Quarantine
from .system import CANNOT_EXCHANGE, exchange


def replace_folder(directory: Directory, temp: str, key: str, quarantine: Quarantine) -> None:
    """Move the folder under the key's name to quarantine, and give the name to the file `temp`."""
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
    """Give the key's name to `other`, and return the new name of the file or folder that had it before."""
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
        directory.sync()  # the new name must be durable before anything else gets the old one
        directory.rename(other, name)
    except BaseException:
        directory.rename(aside, name)
        raise
    return aside
