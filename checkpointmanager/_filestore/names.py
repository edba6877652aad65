"""The files of a change: written under temp names first, given their names later. Syncs nothing: the callers know when.

write   .tmp-N                      a full disk shows here, before anything is promised
link    key.json -> .tmp-M          the current generation keeps a second name
rename  .tmp-M -> .previous-key
unlink  .tmp-M                      still there if both were names of one file
rename  .tmp-N -> key.json          readers see the new generation from here on
"""

from __future__ import annotations

import errno
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from .._interruption import ignored, pass_on_interruption
from .._store import Put, Remove, Replaces
from ..format import Change, Damaged, Reason, current_name, previous_name, truth
from .directory import Directory
from .reading import read_change, read_changes
from .system import NO_ROOM

Errors = dict[str, tuple[OSError, bool]]  # by key: what went wrong with its change; True: the change is in doubt


class Staged(NamedTuple):
    """A change whose new file, if it has one, is written under a temp name."""

    change: Change
    replaces: Replaces
    temp: str  # "" for a removal


def stage(directory: Directory, changes: Sequence[Put | Remove], errors: Errors, max_bytes: int) -> list[Staged]:
    """Write the new files, and return the changes whose files could be written."""
    staged: list[Staged] = []
    try:
        for change in changes:
            if isinstance(change, Remove):
                staged.append(Staged(Change(change.key, change.generation, None), Replaces.WHOLE, ""))
                continue
            try:
                temp = _write(directory, change, max_bytes)
            except OSError as error:
                pass_on_interruption(error)
                errors[change.key] = (error, False)
                continue
            staged.append(Staged(Change(change.key, change.generation, change.blob), change.replaces, temp))
    except BaseException:
        discard_temps(directory, staged)
        raise
    return staged


def discard_temps(directory: Directory, staged: Iterable[Staged]) -> None:
    """Remove the new files of changes that were not made."""
    for each in staged:
        if each.temp:
            directory.discard(each.temp)


def _write(directory: Directory, put: Put, max_bytes: int) -> str:
    """On a full disk the previous generation, which the write replaces anyway, makes room for it."""
    try:
        return directory.write_temp(put.blob)
    except OSError as error:
        is_full = error.errno in NO_ROOM and put.replaces is Replaces.WHOLE
        if not is_full or not _has_spare_previous(directory, put.key, max_bytes):
            raise
        directory.discard(previous_name(put.key))
        return directory.write_temp(put.blob)


def _has_spare_previous(directory: Directory, key: str, max_bytes: int) -> bool:
    """False also if the current file has rotted: then the previous generation may be the only good one."""
    try:
        is_whole = read_change(directory, current_name(key), key, max_bytes) is not None
    except Damaged:
        return False
    return is_whole and directory.exists(previous_name(key))


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


def put_names_right(directory: Directory, key: str, changes: Sequence[Change], max_bytes: int) -> Change:
    """Give a key of the journal the files that count, without a sync; returns the change that counts.

    Raises OSError if its files cannot be read or replaced: nothing may be concluded from what was not read.
    """
    try:
        current, before = read_changes(directory, key, max_bytes)
    except Damaged as damage:
        number = errno.EISDIR if damage.reason is Reason.NOT_A_FILE else damage.errno
        raise OSError(number, damage.detail) from damage
    newest, previous = truth(changes, current, before)
    if newest is None:
        take_away(directory, key)
        return Change(key, max(change.generation for change in changes), None)
    if previous is None:
        directory.discard(previous_name(key))
    elif previous != before:
        with ignored(OSError):  # costs only the previous generation, as in every update
            _set_previous(directory, previous, is_current=previous == current)
    if newest != current:
        assert newest.blob is not None
        directory.rename(directory.write_temp(newest.blob), current_name(key))
    return newest


def _set_previous(directory: Directory, previous: Change, *, is_current: bool) -> None:
    if is_current:
        temp = directory.new_temp()
        directory.link_or_copy(current_name(previous.key), temp)
    else:
        assert previous.blob is not None
        temp = directory.write_temp(previous.blob)
    try:
        directory.rename(temp, previous_name(previous.key))
    except OSError:
        directory.discard(temp)
        raise
