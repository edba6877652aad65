"""Which strings may be keys, and the file names that they get.

ASCII letters, digits, '-', '_' and '.' stay as they are. Every other character, and a '.' or '-' at the start, becomes
%XX for each byte of its UTF-8 form, so `ls` shows readable names and no key can leave its directory.
"""

from __future__ import annotations

import re
from functools import lru_cache

MAX_NAME_BYTES = 200  # leaves room in a 255-byte file name for the suffix of a quarantined copy

_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?")
_ESCAPED = re.compile(rb"%([0-9A-F]{2})")
_UNSAFE = re.compile(rb"^[.-]|[^A-Za-z0-9._-]")
CACHED_KEYS = 16384  # the same keys are used again and again


def is_key(text: object) -> bool:
    """True for a str that is not empty, can be written as UTF-8, and has an encoded name of at most 200 bytes."""
    # Exactly str: `class Key(str, Enum)` equals its text, but formats as "Key.NAME".
    return type(text) is str and _is_key(text)


def is_name(text: object) -> bool:
    """True for 1 to 200 letters, digits, '-', '_' and '.', with a letter or digit at both ends: kinds and boot ids."""
    return type(text) is str and len(text) <= MAX_NAME_BYTES and _NAME.fullmatch(text) is not None


@lru_cache(maxsize=CACHED_KEYS)
def encode_key(key: str) -> str:
    """The name of a key in files, screens and logs."""
    return _UNSAFE.sub(lambda found: b"%%%02X" % found[0][0], key.encode()).decode()


def decode_key(name: str) -> str | None:
    """The key with this encoded name; None if no key has it, because it is not the canonical encoding of any."""
    try:
        key = _ESCAPED.sub(lambda found: bytes.fromhex(found[1].decode()), name.encode()).decode()
    except UnicodeError:
        return None
    return key if is_key(key) and encode_key(key) == name else None


@lru_cache(maxsize=CACHED_KEYS)
def _is_key(text: str) -> bool:
    try:
        return 0 < len(encode_key(text)) <= MAX_NAME_BYTES
    except UnicodeEncodeError:  # a lone surrogate
        return False
