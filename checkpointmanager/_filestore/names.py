"""Gives checkpoints their names, and takes them away. Syncs nothing: the callers know when.

link    key.json -> .tmp-M          the current generation keeps a second name
rename  .tmp-M -> .previous-key
unlink  .tmp-M                      still there if both were names of one file
rename  .tmp-N -> key.json          readers see the new generation from here on
"""

from __future__ import annotations

from .._interruption import pass_on_interruption
from .._store import Replaces
from ..format import current_name, previous_name
from .directory import Directory


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
