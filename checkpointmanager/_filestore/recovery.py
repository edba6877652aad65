"""Recovers what a dead owner left in its spares, before anything else is done.

For every key that a whole spare names, the candidates are the files under the key's two names and the spares; the
highest generation wins (_format/newest.py). The winners are put in place by calls that work on every file system:

    open, write, fsync   .tmp-L                        a copy of key.json, if that wins and its owner died in this
                                                       boot: a failed sync may have lost its name
    open, write, fsync   .spare-N                      each winner again, before any name changes: after a kill its
                                                       bytes may exist in memory only, and after a failed sync
                                                       they may never reach the disk
    create, rename       .tmp-K -> .spares             from now on it names this boot: if this open fails at a sync,
                                                       the next one must make the names again
    rename               .tmp-L -> key.json
    link                 key.json -> .tmp-M            if key.json is whole and lower
    rename, unlink       .tmp-M -> .previous-key       a rename between two names of one file does nothing
    link, rename         .spare-N -> key.json          the spare keeps its name until this is durable
    link, rename         .spare-N -> .previous-key     instead of the last three, if key.json is damaged
    fsync                the directory
    rename               .spare-N -> .tmp-O            every spare; back if the sync fails (removals.py)
    fsync                the directory
    unlink               .tmp-O, then .spares

If any call fails, the open fails and the spares stay. A crash at any call leaves a directory for which the same rule
gives the same result. If key.json is absent, nothing is created: the checkpoint was removed.

If the dead owner also left the record of a transaction (transactions.py), that is completed afterwards, never before:
then the newest single update has its proper name when the record turns it into the previous generation. Both steps
compare generations, so the highest of all wins, as if they were one step:

- The generation of a key rises with every change, including removals, and counts spares and any record that a crash may
  bring back. So an update before the transaction has a lower generation than the member, one after it a higher one.
- An update after the transaction can exist only if the transaction was completed: by then its names were durable, in
  whatever order, and its file was gone. So a member whose file still exists is newer than everything this step has
  moved, and newer than the content of its name, damaged or not. That is why the record may replace damaged bytes, which
  are kept first, although a spare may not.
- A spare never creates an absent key.json, so a removal or creation in the record still finds the state for which it
  was decided. The result of this step is durable before the record is touched, and a crash in between leaves a record
  and no spares, which is exactly the remaining work.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field

from .._format.envelope import open_sealed
from .._format.names import PREVIOUS, SPARE, SPARES, SUFFIX
from .._format.newest import ABSENT, DAMAGED, Candidate, Place, Verdict, candidate_in, decide
from .._format.reason import SHORTAGES, Damaged, TooNew
from .._format.repair import SearchBudget
from .directory import Directory
from .marker import is_of_another_boot, renew
from .newfiles import FileFailed, NewFiles
from .quarantine import Quarantine
from .reading import read_file, read_to_judge
from .removals import Removals
from .system import NO_ROOM, sync, write_all


@dataclass(slots=True)
class Waiting:
    """The contents of a directory's spares."""

    names: list[str] = field(default_factory=list)
    candidates: dict[str, list[Candidate]] = field(default_factory=dict)  # by key
    # An incomplete write, or rot of a complete one: nothing distinguishes them.
    torn: list[str] = field(default_factory=list)


def find_waiting(directory: Directory, names: Iterable[str], max_bytes: int) -> Waiting:
    """Read all spares. Raises OSError if one cannot be read: such a spare proves nothing."""
    waiting, budget = Waiting(), SearchBudget()
    for name in sorted(name for name in names if name.startswith(SPARE)):
        waiting.names.append(name)
        try:
            candidate = candidate_in(name, read_to_judge(directory, name, max_bytes), budget)
        except FileNotFoundError:  # an owner is moving it into place right now
            continue
        except Damaged:
            candidate = None  # not a file, or not ours
        except TooNew as too_new:
            raise OSError(None, f"{name}: {too_new}; open it with the release that wrote it") from too_new
        if candidate:
            waiting.candidates.setdefault(candidate.key, []).append(candidate)
        else:
            waiting.torn.append(name)
    return waiting


def recover(directory: Directory, names: Iterable[str], max_bytes: int, quarantine: Quarantine) -> str:
    """Returns what was done, in words, or "" if nothing. If it raises OSError, it has deleted nothing."""
    names = set(names)
    error_before = directory.sync_error
    waiting = find_waiting(directory, names, max_bytes)
    verdicts = {key: _judge(directory, key, found, max_bytes) for key, found in waiting.candidates.items()}
    moves = {key: verdict for key, verdict in verdicts.items() if verdict}
    in_place = verdicts.keys() - moves.keys()
    from_disk = bool(verdicts) and is_of_another_boot(directory)
    copies = _copied(directory, in_place, max_bytes) if in_place and not from_disk else {}
    for _, candidate in moves.values():
        _write_again(directory, candidate)
    if from_disk and moves:
        renew(directory)
    for key, temp in copies.items():
        directory.rename(temp, key + SUFFIX)
    for key, (place, candidate) in moves.items():
        if place is Place.PREVIOUS:
            with suppress(FileNotFoundError):
                quarantine.move_folder(PREVIOUS + key, key)  # else the only whole generation has no place
        _move(directory, key, place, candidate)
    if waiting.names:
        directory.sync_since(error_before)
        with Removals(directory, quarantine) as removed:
            for name in waiting.names:
                removed.take(name, SPARES[1:])
            directory.sync_since(error_before)
    if SPARES in names:
        directory.discard(SPARES)
    return _summary(len(moves), len(waiting.torn))


def generation_of(directory: Directory, name: str, key: str, max_bytes: int) -> int:
    """The generation of the whole checkpoint of this key under the name, or ABSENT, or DAMAGED."""
    try:
        header, _ = open_sealed(read_file(directory, name, max_bytes), key)
    except FileNotFoundError:
        return ABSENT
    except Damaged as damage:
        if damage.errno in SHORTAGES:
            raise OSError(damage.errno, f"{name}: {damage.detail}") from damage
        return DAMAGED
    except TooNew:
        return DAMAGED  # whole, but not ours to replace
    return header.generation


def _judge(directory: Directory, key: str, found: list[Candidate], max_bytes: int) -> Verdict | None:
    current = generation_of(directory, key + SUFFIX, key, max_bytes)
    return decide(current, generation_of(directory, PREVIOUS + key, key, max_bytes), found)


def _copied(directory: Directory, keys: Iterable[str], max_bytes: int) -> dict[str, str]:
    """New files with the content of those keys that are whole; empty if the disk has no room."""
    files = NewFiles(directory)
    try:
        whole = [key for key in sorted(keys) if generation_of(directory, key + SUFFIX, key, max_bytes) > ABSENT]
        copies = {key: files.add(read_to_judge(directory, key + SUFFIX, max_bytes), key) for key in whole}
        files.sync()
    except FileFailed as failed:
        files.discard()
        if failed.error.errno not in NO_ROOM:
            raise failed.error from None
        return {}
    except BaseException:
        files.discard()
        raise
    return copies


def _write_again(directory: Directory, candidate: Candidate) -> None:
    descriptor = os.open(candidate.name, os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=directory.descriptor)
    try:
        write_all(descriptor, candidate.blob)
        if candidate.mended:
            os.truncate(descriptor, len(candidate.blob))
        sync(descriptor)
    finally:
        os.close(descriptor)


def _move(directory: Directory, key: str, place: Place, candidate: Candidate) -> None:
    if place is Place.PREVIOUS:
        _link(directory, candidate.name, PREVIOUS + key)
        return
    with suppress(IsADirectoryError):  # a folder in that place is no reason to refuse the new generation
        _link(directory, key + SUFFIX, PREVIOUS + key)
    _link(directory, candidate.name, key + SUFFIX)


def _link(directory: Directory, old: str, new: str) -> None:
    """Give a file another name. It keeps the old one, so that the next owner finds it there if a sync fails."""
    temp = directory.new_temp()
    try:
        directory.link_or_copy(old, temp)
        directory.rename(temp, new)
    finally:
        directory.discard(temp)  # it remains if both names were the same file, as a killed writer leaves them


def _summary(moved: int, torn: int) -> str:
    put = f"moved {moved} newer generations of an earlier process into place" if moved else ""
    left = f"removed {torn} spares that are not whole: incomplete writes, or damage to complete ones" if torn else ""
    return "; ".join(filter(None, (put, left)))
