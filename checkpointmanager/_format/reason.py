"""What can be wrong with a checkpoint's bytes, as a word that programs can branch on.

Every room reports damage with the same value, so that the manager only has to add the name of the file.
"""

from __future__ import annotations

import errno
import os
from enum import StrEnum


class Reason(StrEnum):
    """Why a checkpoint cannot be trusted."""

    EMPTY = "empty"
    NUL_FILLED = "nul-filled"
    TRUNCATED = "truncated"
    TRAILING_BYTES = "trailing-bytes"
    CHECKSUM_MISMATCH = "checksum-mismatch"
    NOT_JSON = "not-json"
    WRONG_SHAPE = "wrong-shape"
    WRONG_KEY = "wrong-key"
    TOO_LARGE = "too-large"
    UNREADABLE = "unreadable"
    NOT_A_FILE = "not-a-file"


# A read that fails for want of these says nothing about the file.
SHORTAGES = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM})


class Damaged(Exception):
    """Raised by the rooms below the manager. `detail` never quotes data, only places, sizes and types."""

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
    """Raised by the rooms below the manager for what a newer program wrote: not damaged, but not for us."""


def reason_of(error: OSError) -> str:
    """The words for an OSError, without the file names that its own text repeats."""
    return error.strerror or (os.strerror(error.errno) if error.errno else type(error).__name__)
