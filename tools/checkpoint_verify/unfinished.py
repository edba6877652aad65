"""A transaction that its agent has not finished: which keys it has, and what is to become of them."""

from __future__ import annotations

import os
import time

from checkpointmanager._format.names import TRANSACTION
from checkpointmanager._format.reason import Damaged, TooNew, reason_of
from checkpointmanager._format.record import open_record

from . import disk, words
from .lockstate import Held, LockState
from .meaning import Problem, Severity

IN_FLIGHT_SECONDS = 60.0  # a live agent may be in the middle of one for so long
SHOWN_KEYS = 5


def unfinished_transaction(path: str, lock: LockState) -> list[Problem]:
    """At most one. Takes no lock and writes nothing."""
    record_path = os.path.join(path, TRANSACTION)
    try:
        status = os.lstat(record_path)
    except OSError:  # there is none; or nothing of the directory can be looked at, which is said elsewhere
        return []
    try:
        maybe_alive = lock.held in (Held.HELD, Held.UNKNOWN)
        if maybe_alive and time.time() - status.st_mtime < IN_FLIGHT_SECONDS:
            return []
        record = open_record(disk.read_whole(record_path, None))
    except FileNotFoundError:
        return []
    except (Damaged, TooNew, OSError) as error:
        return [_unreadable(record_path, reason_of(error) if isinstance(error, OSError) else str(error))]
    if record is None:
        return []
    waiting = sum(os.path.lexists(os.path.join(path, member.file)) for member in record.members if member.file)
    return [_unfinished(record_path, sorted(record.keys), waiting)]


def _unfinished(path: str, keys: list[str], waiting: int) -> Problem:
    more = f" and {len(keys) - SHOWN_KEYS:,} more" if len(keys) > SHOWN_KEYS else ""
    return Problem(
        Severity.WARNING,
        path,
        "",
        "unfinished-transaction",
        f"a transaction of {words.count(len(keys), 'key')} ({', '.join(keys[:SHOWN_KEYS])}{more}) is not finished, "
        f"{words.count(waiting, 'new checkpoint')} still in temp files",
        "Nothing is lost: these keys hold what the transaction says, whatever their files say",
        "start the agent, which finishes it; leave all files of the directory as they are",
    )


def _unreadable(path: str, why: str) -> Problem:
    return Problem(
        Severity.WARNING,
        path,
        "",
        "unreadable-transaction",
        f"the record of an unfinished transaction cannot be read: {why}",
        "Some of its keys may have their new content and others the old one",
        "copy the directory away before the agent starts, and compare the keys that belong together",
    )
