"""The names in a checkpoint directory. A name with a leading dot is never a checkpoint."""

from __future__ import annotations

from functools import lru_cache

from ._keys import CACHED_KEYS, decode_key, encode_key

SUFFIX = ".json"  # <key>.json
PREVIOUS = ".previous-"  # .previous-<key>: the previous generation
TEMP = ".tmp-"  # .tmp-<token>-<number>: a write that is not complete, and may never be
JOURNAL = ".journal"  # the changes since the files were last synced
LOCK = ".lock"  # held by the owner
QUARANTINE = ".quarantine"  # .quarantine/<key>.<time>.<reason>.json


@lru_cache(maxsize=CACHED_KEYS)
def current_name(key: str) -> str:
    """The file of a checkpoint."""
    return encode_key(key) + SUFFIX


@lru_cache(maxsize=CACHED_KEYS)
def previous_name(key: str) -> str:
    """The file of its previous generation."""
    return PREVIOUS + encode_key(key)


def key_in(name: str) -> str | None:
    """The key of a checkpoint's file; None for any other file."""
    return decode_key(name.removesuffix(SUFFIX)) if name.endswith(SUFFIX) else None
