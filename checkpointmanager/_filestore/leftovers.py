"""Clears what dead writers left when the owner opens the directory, and makes everything they did durable.

No other process writes while this one has the lock, so every temp name belongs to a dead writer.
"""

from __future__ import annotations

import re
from contextlib import suppress

from .._format.names import PREVIOUS, REMOVED, REPLACED, SUFFIX, TEMP
from .directory import Directory
from .quarantine import Quarantine
from .removals import Removals

_KEYED = re.compile(rf"{re.escape(TEMP)}[0-9a-f]+-\d+({REMOVED}|{REPLACED})(.+)")


def sweep(directory: Directory, names: set[str], quarantine: Quarantine) -> tuple[int, int]:
    """Returns the number of temp names, and the number of previous generations without a checkpoint."""
    error_before = directory.sync_error
    temps = [name for name in names if name.startswith(TEMP)]
    for temp in temps:
        if not directory.discard(temp):
            _clear_folder(directory, temp, names, quarantine)
    orphans = [n for n in names if n.startswith(PREVIOUS) and n.removeprefix(PREVIOUS) + SUFFIX not in names]
    with Removals(directory, quarantine) as removed:
        for name in orphans:
            with suppress(OSError):
                removed.take(name, name.removeprefix(PREVIOUS))
        directory.sync_since(error_before)
    return len(temps), len(orphans)


def _clear_folder(directory: Directory, temp: str, names: set[str], quarantine: Quarantine) -> None:
    """A writer took this folder from a checkpoint's place. It goes back if the place is empty: no write returned."""
    match = _KEYED.fullmatch(temp)
    if match is None:
        return
    word, key = match[1], match[2]
    with suppress(OSError):
        if word == REPLACED and key + SUFFIX not in names:
            directory.rename(temp, key + SUFFIX)
            names.add(key + SUFFIX)
        else:
            quarantine.move_folder(temp, key)
