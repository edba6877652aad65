"""Which strings may name a checkpoint or a kind of checkpoint.

A key becomes a file name, and keys and kinds appear unescaped in the header, so nothing else may pass.
"""

from __future__ import annotations

import re
from functools import lru_cache

from .._errors import InvalidKey

MAX_KEY_LENGTH = 200  # leaves room in a 255-byte file name for the suffix of a quarantined copy

_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?")


def check_key(key: str) -> str:
    """Return `key` if it has the form of kubelet's keys and at most 200 characters; otherwise raise InvalidKey."""
    # Exactly str: `class Key(str, Enum)` equals its text, but f-strings would write "Key.NAME" into the header.
    if type(key) is str and _is_name_cached(key):
        return key
    raise InvalidKey(key)


def is_name(text: object) -> bool:
    """True for 1 to 200 letters, digits, '-', '_' and '.', with a letter or digit at both ends."""
    return type(text) is str and len(text) <= MAX_KEY_LENGTH and _NAME.fullmatch(text) is not None


_is_name_cached = lru_cache(maxsize=16384)(is_name)  # the same keys are written again and again
