"""A transaction that its agent has committed and not finished: which keys, and what is to become of them."""

from __future__ import annotations

import os
import time

from checkpointmanager import CheckpointError
from checkpointmanager._filestore.directory import Directory
from checkpointmanager._filestore.unfinished import Standing, Unfinished
from checkpointmanager._format.names import TRANSACTION
from checkpointmanager._format.reason import Damaged, TooNew, reason_of

from . import words
from .lockstate import Held, LockState
from .meaning import Problem, Severity

IN_FLIGHT_SECONDS = 60.0  # a live agent may be in the middle of one for so long
SHOWN_KEYS = 5


def unfinished_transaction(path: str, lock: LockState) -> list[Problem]:
    """At most one. Takes no lock and writes nothing."""
    record_path = os.path.join(path, TRANSACTION)
    try:
        status = os.lstat(record_path)
        maybe_alive = lock.held in (Held.HELD, Held.UNKNOWN)
        if maybe_alive and time.time() - status.st_mtime < IN_FLIGHT_SECONDS:
            return []
        directory = Directory(path, create=False, allow_insecure=True)
    except (OSError, CheckpointError):
        return []
    try:
        unfinished = Unfinished(directory)
        record = unfinished.read()
        if record is None:
            return []
        waiting = [each.member.key for each in unfinished.candidates(record) if each.standing is Standing.WAITING]
        return [_unfinished(record_path, sorted(record.keys), len(waiting))]
    except (Damaged, TooNew, OSError) as error:
        return [_unreadable(record_path, reason_of(error) if isinstance(error, OSError) else str(error))]
    finally:
        directory.close()


def _unfinished(path: str, keys: list[str], waiting: int) -> Problem:
    more = f" and {len(keys) - SHOWN_KEYS:,} more" if len(keys) > SHOWN_KEYS else ""
    return Problem(
        Severity.WARNING,
        path,
        "",
        "unfinished-transaction",
        f"a transaction of {words.count(len(keys), 'key')} ({', '.join(keys[:SHOWN_KEYS])}{more}) is committed and not "
        f"finished, {words.count(waiting, 'file')} under the old name",
        "Nothing is lost: what its keys hold is what the transaction says, not what their files say",
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
