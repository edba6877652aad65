"""Puts whole checkpoints in place, and removes them, as the owner of the directory.

What is put in place keeps its kind, version, time and data. Its generation rises above every generation of its key that
can still be seen, so that neither the journal nor a reader takes an older one for newer. What it replaces goes to
quarantine first.
"""

from __future__ import annotations

import errno
from typing import cast

from checkpointmanager import CheckpointNotFound, Put, Reason, Remove, Replaces, Store
from checkpointmanager.format import MAX_GENERATION, Damaged, TooNew, generation_in, open_any, seal

from .steps import Step, read_back

REPLACED = cast(Reason, "replaced")  # the word in a copy's name: what it holds need not be damaged


def put_back(store: Store, step: Step, blob: bytes) -> None:
    """Give the step's key these bytes, which are a whole checkpoint of it. Raises OSError or CheckpointError."""
    key = step.target.real_key
    with store.writing():
        store.check_owner([key])
        current, highest = _present(store, key)
        if current == blob:
            step.action, step.detail = "good", "it holds exactly this already"
            return
        header, data = open_any(blob)
        stated = header.generation
        if stated <= highest:
            header = header._replace(generation=highest + 1)
            blob = seal(header, data)
        if header.generation > MAX_GENERATION:
            raise OSError(errno.EOVERFLOW, f"there is no generation above {highest}")
        replaces = Replaces.ABSENT if current is None else _replaces(current)
        _keep(store, step, replaces)
        _commit(store, Put(key, blob, header.generation, replaces))
    written = f"generation {stated}, written {header.written:%Y-%m-%d %H:%M:%S} UTC"
    step.detail = f"{written}, as generation {header.generation}" if stated != header.generation else written
    read_back(step)


def take_away(store: Store, step: Step) -> None:
    """Remove the step's key. Raises OSError or CheckpointError."""
    key = step.target.real_key
    with store.writing():
        store.check_owner([key])
        current, highest = _present(store, key)
        if current is None:
            step.action, step.detail = "good", "there is no such checkpoint"
            return
        _keep(store, step, Replaces.WHOLE)
        _commit(store, Remove(key, min(highest + 1, MAX_GENERATION)))


def _present(store: Store, key: str) -> tuple[bytes | None, int]:
    """What the key has now, b"" if that cannot be read as a file, and the highest generation that can be seen of it."""
    current: bytes | None = None
    highest = store.highest_generation(key)
    for previous in (False, True):
        try:
            blob = store.read(key, previous=previous)
        except CheckpointNotFound:
            continue
        except Damaged as damage:
            if damage.reason is Reason.UNREADABLE:
                raise OSError(damage.errno, f"{store.path_of(key)}: {damage.detail}; nothing was changed") from damage
            blob = b""
        highest = max(highest, generation_in(blob))
        current = current if previous else blob
    return current, highest


def _replaces(blob: bytes) -> Replaces:
    try:
        open_any(blob)
    except (Damaged, TooNew):
        return Replaces.DAMAGED
    return Replaces.WHOLE


def _keep(store: Store, step: Step, replaces: Replaces) -> None:
    if replaces is not Replaces.ABSENT:
        step.quarantined = store.quarantine(step.target.real_key, REPLACED)


def _commit(store: Store, change: Put | Remove) -> None:
    for failure in store.commit([change]).values():
        raise failure
