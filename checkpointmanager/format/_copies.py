"""The names of copies in quarantine, which say what they are copies of."""

from __future__ import annotations

import re
from collections.abc import Container
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from ._keys import decode_key, encode_key

KEPT_PER_KEY = 4  # the newest
KEPT = 1024  # over all keys
KEPT_RETIRED = 1000  # over all keys; apart from the others, so that neither kind displaces the other
KEPT_BYTES = 256 << 20  # over all keys

_TIME = "%Y%m%dT%H%M%S%fZ"
_NAME = re.compile(r"(.+)\.(\d{8}T\d{12}Z)\.([a-z-]+)\.json")


class CopyName(NamedTuple):
    """What the name of a copy says: `<key>.<time>.<reason>.json`. Times sort as text."""

    key: str
    time: str  # UTC
    reason: str


def copy_name(key: str, reason: str, taken: Container[str] = ()) -> str:
    """A name for a copy made now, and not among those taken."""
    time = datetime.now(UTC)
    while (name := f"{encode_key(key)}.{time.strftime(_TIME)}.{reason}.json") in taken:
        time += timedelta(microseconds=1)
    return name


def parse_copy(name: str) -> CopyName | None:
    """None for a name of any other form."""
    match = _NAME.fullmatch(name)
    key = decode_key(match[1]) if match else None
    return CopyName(key, match[2], match[3]) if match and key is not None else None


def time_now() -> str:
    """To compare with the time of a copy."""
    return datetime.now(UTC).strftime(_TIME)
