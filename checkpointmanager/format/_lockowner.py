"""The owner of a directory's lock, as it described itself in the lock file.

This text is only a courtesy to processes that are refused the lock: the kernel's lock decides, never the text.
"""

from __future__ import annotations

import os
import sys
from dataclasses import asdict, dataclass
from datetime import UTC, datetime

import orjson

MAX_LOCK_TEXT_BYTES = 4096  # more is not the text of a lock


@dataclass(frozen=True, slots=True)
class LockOwner:
    """In a container every pid is 1, so the host name (the pod's) and the label say more."""

    pid: int
    host: str
    command: str  # without its arguments, which may be secret
    since: str  # UTC, ISO 8601
    label: str = ""  # `owner` in the file

    @classmethod
    def of_this_process(cls, label: str) -> LockOwner:
        """How this process describes itself in a lock file."""
        since = datetime.now(UTC).isoformat(timespec="seconds")
        # Arguments are left out: they may hold secrets.
        command = sys.argv[0] if sys.argv else ""
        return cls(os.getpid(), os.uname().nodename, _in_unicode(command), since, _in_unicode(label))

    @classmethod
    def parse(cls, text: bytes) -> LockOwner | None:
        """The owner named in a lock file; None if the text cannot be understood."""
        try:
            members = orjson.loads(text)
            return cls(
                int(members["pid"]),
                str(members["host"]),
                str(members["command"]),
                str(members["since"]),
                str(members["owner"]),
            )
        except (orjson.JSONDecodeError, KeyError, TypeError, ValueError):
            return None

    def to_json(self) -> bytes:
        """The text of a lock file. No two calls return the same text, so an owner recognises its own."""
        members = asdict(self)
        members["owner"] = members.pop("label")
        members["token"] = os.urandom(8).hex()
        return orjson.dumps(members, option=orjson.OPT_APPEND_NEWLINE)

    def __str__(self) -> str:
        label = f"{self.label!r}, " if self.label else ""
        return f"{label}pid {self.pid} on {self.host}, {self.command}, since {self.since}"


def _in_unicode(text: str) -> str:
    """A path need not be valid UTF-8, and Python's string for such a path cannot be written as JSON."""
    return text.encode(errors="replace").decode()
