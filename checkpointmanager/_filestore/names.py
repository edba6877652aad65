"""Gives checkpoints their names, and takes them away. Syncs nothing: the callers know when.

link    key.json -> .tmp-M          the current generation keeps a second name
rename  .tmp-M -> .previous-key
unlink  .tmp-M                      still there if both were names of one file
rename  .tmp-N -> key.json          readers see the new generation from here on
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from .._interruption import pass_on_interruption
from .._store import Replaces
from ..format import Change, current_name, previous_name
from .directory import Directory


class Staged(NamedTuple):
    """A change whose new file, if it has one, is written under a temp name."""

    change: Change
    replaces: Replaces
    temp: str  # "" for a removal


class Outcome:
    """What went wrong with some changes, and how long the slowest sync took."""

    def __init__(self) -> None:
        self.errors: dict[str, tuple[OSError, bool]] = {}  # by key; True: in doubt
        self.seconds = 0.0


def put_in_place(directory: Directory, key: str, temp: str, replaces: Replaces) -> None:
    """Give the key's name to the file `temp`. Raises OSError, and then the name is as it was."""
    if replaces is Replaces.WHOLE:
        _keep_previous(directory, key)
    elif replaces is Replaces.ABSENT:
        directory.discard(previous_name(key))  # left over if someone removed the checkpoint by hand
    directory.rename(temp, current_name(key))


def take_away(directory: Directory, key: str) -> None:
    """Remove a checkpoint and its previous generation; an absent one is no error."""
    directory.discard(previous_name(key))  # first: a kill in between must not leave it without a checkpoint
    try:
        directory.unlink(current_name(key))
    except FileNotFoundError:
        return


def _keep_previous(directory: Directory, key: str) -> None:
    """A failure affects only the previous generation, which is then an older one."""
    temp = directory.new_temp()
    try:
        directory.link_or_copy(current_name(key), temp)
        directory.rename(temp, previous_name(key))
    except FileNotFoundError:  # removed by hand: there is nothing to keep
        return
    except OSError as error:
        pass_on_interruption(error)
    finally:
        directory.discard(temp)  # a rename over another name of the same file does nothing, and leaves this one


def discard_temps(directory: Directory, staged: Iterable[Staged]) -> None:
    """Remove the new files of changes that were not made."""
    for each in staged:
        if each.temp:
            directory.discard(each.temp)
