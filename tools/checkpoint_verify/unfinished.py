"""A committed transaction that its owner did not complete: its keys, and what is waiting for them.

A reader applies the spares first and then the record; the highest generation of a key wins. FORMAT.md has the rule.
"""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum, auto

from checkpointmanager._format.envelope import open_sealed
from checkpointmanager._format.names import SUFFIX, TRANSACTION
from checkpointmanager._format.newest import ABSENT, DAMAGED, Place, Verdict
from checkpointmanager._format.reason import Damaged, TooNew, reason_of
from checkpointmanager._format.record import Member, MemberKind, Record, open_record
from checkpointmanager._format.repair import generation_in, repair

from . import disk, words
from .lockstate import Held, LockState
from .meaning import Problem, Severity

IN_FLIGHT_SECONDS = 60.0  # a live agent may take this long to complete a transaction
SHOWN_KEYS = 5
_NOT_A_FILE = frozenset({errno.ELOOP, errno.ENXIO, errno.EISDIR})


@dataclass(frozen=True, slots=True)
class Unfinished:
    """What the record of a directory means now; empty if no record counts."""

    problems: list[Problem] = field(default_factory=list)
    waiting: dict[str, Member] = field(default_factory=dict)  # by key: newer than its own file and its spares

    @property
    def files(self) -> frozenset[str]:
        """Temp files that hold the newest generation of a key, so they are not left over."""
        return frozenset(member.file for member in self.waiting.values())


class _Standing(Enum):
    WAITING = auto()  # not in its place yet
    DONE = auto()
    PAST = auto()  # the key has something newer, or was removed later
    LOST = auto()  # neither in its place nor in its file


def unfinished_transaction(path: str, lock: LockState, spares: Mapping[str, Verdict]) -> Unfinished:
    """`spares` are the generations that wait in spares, by key. Takes no lock and writes nothing."""
    record_path = os.path.join(path, TRANSACTION)
    try:
        status = os.lstat(record_path)
    except OSError:  # there is none, or the directory cannot be read, which is reported elsewhere
        return Unfinished()
    maybe_alive = lock.held in (Held.HELD, Held.UNKNOWN)
    if maybe_alive and time.time() - status.st_mtime < IN_FLIGHT_SECONDS:
        return Unfinished()
    try:
        record = _opened(disk.read_whole(record_path, None))
        standings = dict(_standings(path, record, spares)) if record else {}
    except FileNotFoundError:
        return Unfinished()
    except (Damaged, TooNew, OSError) as error:
        return Unfinished([_unreadable(record_path, reason_of(error) if isinstance(error, OSError) else str(error))])
    if not record or not _was_committed(standings):
        return Unfinished()
    waiting = {member.key: member for member, standing in standings.items() if standing is _Standing.WAITING}
    newer = [_newer(path, member) for member in waiting.values() if member.file]
    return Unfinished([_problem(record_path, sorted(record.keys), waiting), *newer], waiting)


def _opened(blob: bytes) -> Record | None:
    try:
        return open_record(blob)
    except Damaged:
        mended = repair(blob)
        if mended is None:
            raise
        return open_record(mended.blob)


def _standings(path: str, record: Record, spares: Mapping[str, Verdict]) -> Iterator[tuple[Member, _Standing]]:
    for member in record.members:
        spare = spares.get(member.key)
        in_spare = spare.candidate.generation if spare and spare.place is Place.CURRENT else ABSENT
        current = in_spare or _generation(os.path.join(path, member.key + SUFFIX), member.key)
        yield member, _standing(member, current, os.path.lexists(os.path.join(path, member.file)))


def _standing(member: Member, current: int, file_exists: bool) -> _Standing:
    """`current` is the generation that the key has without the record, or ABSENT, or DAMAGED."""
    removes = member.kind is MemberKind.REMOVE
    if current == ABSENT and member.kind is not MemberKind.CREATE:
        return _Standing.DONE if removes else _Standing.PAST
    if current >= member.generation:
        return _Standing.DONE if current == member.generation and not removes else _Standing.PAST
    return _Standing.WAITING if removes or file_exists else _Standing.LOST


def _was_committed(standings: Mapping[Member, _Standing]) -> bool:
    """False if a power loss kept the record but not all of its files; then no member was applied."""
    found = {standing for member, standing in standings.items() if member.file}
    return _Standing.LOST not in found or _Standing.DONE in found


def _generation(path: str, key: str) -> int:
    """Raises OSError: a file that cannot be read proves nothing."""
    blob = b""
    try:
        blob = disk.read_whole(path, None)
        return open_sealed(blob, key)[0].generation
    except FileNotFoundError:
        return ABSENT
    except OSError as error:
        if error.errno in _NOT_A_FILE:
            return DAMAGED
        raise
    except Damaged:
        return DAMAGED
    except TooNew:
        return generation_in(blob)


def _problem(path: str, keys: list[str], waiting: Mapping[str, Member]) -> Problem:
    more = f" and {len(keys) - SHOWN_KEYS:,} more" if len(keys) > SHOWN_KEYS else ""
    whose = f"{words.count(len(keys), 'key')} ({', '.join(keys[:SHOWN_KEYS])}{more})"
    newer = sum(1 for member in waiting.values() if member.file)
    numbers = ((newer, "newer generation"), (len(waiting) - newer, "removal"))
    counts = " and ".join(words.count(number, noun) for number, noun in numbers if number)
    rest = f"{counts} waiting" if waiting else "everything is in place, and only its record is left"
    return Problem(
        Severity.WARNING,
        path,
        "",
        "unfinished-transaction",
        f"a transaction of {whose} is not finished: {rest}",
        "Nothing is lost: readers of the library already see the result, whatever the files of these keys contain",
        "start the agent, which finishes it; until then leave all files in this directory as they are",
    )


def _newer(path: str, member: Member) -> Problem:
    return Problem(
        Severity.WARNING,
        os.path.join(path, member.key + SUFFIX),
        member.key,
        "unfinished-transaction",
        f"a newer generation is waiting, {member.generation} in {member.file}",
        "The transaction is committed: readers of the library already see this generation",
        "",
    )


def _unreadable(path: str, why: str) -> Problem:
    return Problem(
        Severity.WARNING,
        path,
        "",
        "unreadable-transaction",
        f"the record of an unfinished transaction cannot be read: {why}",
        "Some of its keys may have their new content and others the old",
        "copy the directory before the agent starts, and compare the keys that belong together",
    )
