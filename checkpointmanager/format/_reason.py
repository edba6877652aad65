"""What can be wrong with a checkpoint's bytes, as a word that programs can branch on.

Every module reports damage with the same values, so the manager only has to add the name of the file.
"""

from __future__ import annotations

import errno
import os
from enum import StrEnum


class Reason(StrEnum):
    """Why a checkpoint cannot be trusted."""

    EMPTY = "empty"  # no bytes at all
    NUL_FILLED = "nul-filled"  # NUL bytes everywhere, or from some offset to the end
    TRUNCATED = "truncated"  # does not end as a checkpoint does
    TRAILING_BYTES = "trailing-bytes"  # a whole checkpoint, and more after it
    CHECKSUM_MISMATCH = "checksum-mismatch"  # any other damage
    NOT_JSON = "not-json"  # the checksum holds, but the data is not JSON: a writer's fault
    WRONG_SHAPE = "wrong-shape"  # the checksum holds, but the header is incomplete: a writer's fault
    WRONG_KEY = "wrong-key"  # the checksum holds, but for another key: copied or renamed
    TOO_LARGE = "too-large"  # over max_bytes; not read
    UNREADABLE = "unreadable"  # an I/O error or no permission; not read
    NOT_A_FILE = "not-a-file"  # a folder, link or FIFO; not read


RETIRED = "retired"  # in the name of a quarantine copy: a whole checkpoint that retain() removed, no damage

SHORTAGES = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM})  # a read that fails so says nothing about the file


class Damaged(Exception):
    """What a Store raises for bytes that cannot be read; the manager raises CorruptCheckpoint with it.

    `reason` classifies the damage. `detail` never quotes data, only places, sizes and types. `expected` and `actual`
    are checksums, or "" if there are none; `errno` is that of a failed read.
    """

    def __init__(
        self,
        reason: Reason,
        detail: str,
        *,
        expected: str = "",
        actual: str = "",
        errno: int | None = None,
    ) -> None:
        super().__init__(f"{reason}: {detail}")
        self.reason = reason
        self.detail = detail
        self.expected = expected
        self.actual = actual
        self.errno = errno


class TooNew(Exception):
    """Raised below the manager for content that a newer program wrote: not damaged, but not ours to read."""


def describe_error(error: OSError) -> str:
    """The description of an OSError, without the file names in its own text."""
    return error.strerror or (os.strerror(error.errno) if error.errno else type(error).__name__)
