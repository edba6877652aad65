"""The names below a prefix, and how they are listed.

They are the same as in a directory, so that a checkpoint can be copied between the two. Long lists come page by page,
all pages as of one moment.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ..format import LOCK, QUARANTINE, current_name, encode_key, key_in, previous_name
from .client import Client, StoreCall
from .errors import Compacted
from .wire import RANGE

NAMES = 1000  # per page
VALUES = 64  # per page: each may be as large as a request
MAX_PREFIX_BYTES = 1000  # a request has room for the names of the largest checkpoint (commit.py)


class Layout:
    """The names of one store."""

    def __init__(self, prefix: str) -> None:
        self.prefix = checked_prefix(prefix)
        self.lock = self._at(LOCK)
        # From the lowest first character of an encoded key to beyond the highest. Names with a dot are in between.
        self.checkpoints = (self._at("%"), self._at("{"))
        self.quarantine = self._at(f"{QUARANTINE}/")

    def current(self, key: str) -> bytes:
        return self._at(current_name(key))

    def previous(self, key: str) -> bytes:
        return self._at(previous_name(key))

    def copies(self, key: str) -> bytes:
        """How the names of a key's copies in quarantine begin, and perhaps the names of other keys' copies."""
        return self.quarantine + f"{encode_key(key)}.".encode()

    def key_of(self, name: bytes) -> str | None:
        """The key of a checkpoint's name; None if it is something else, such as a store below this one."""
        return key_in(self.below(name))

    def below(self, name: bytes) -> str:
        """A name without the prefix."""
        return name.decode(errors="replace")[len(self.prefix) + 1 :]

    def _at(self, name: str) -> bytes:
        return f"{self.prefix}/{name}".encode()


def checked_prefix(prefix: object) -> str:
    """`prefix` without a slash at its end, or ValueError."""
    if not isinstance(prefix, str):
        raise TypeError(f"the prefix is a str such as '/agents/node-7', not a {type(prefix).__name__}")
    found = prefix.rstrip("/")
    if not found.isprintable() or len(found.encode()) > MAX_PREFIX_BYTES:
        raise ValueError(f"the prefix is printable and at most {MAX_PREFIX_BYTES} bytes long")
    # No segment that means another folder: checkpoint-verify copies a prefix to a path of the same name.
    root, *segments = found.split("/")
    if root or not segments or {"", ".", ".."} & {*segments}:
        raise ValueError("the prefix begins with a slash and has a name after each, such as '/agents/node-7'")
    if QUARANTINE in segments:  # its checkpoints would be taken for the copies of the store above
        raise ValueError(f"the prefix has no part named {QUARANTINE!r}, which holds the damaged copies of a store")
    return found


def after_all(start: bytes) -> bytes:
    """The end of the range of all names that begin with `start`. `start` never ends with the highest byte."""
    return start[:-1] + bytes([start[-1] + 1])


def names(client: Client, call: StoreCall, start: bytes, end: bytes) -> tuple[list[Any], int]:
    """From `start` to `end`, without values, and the revision at which they were listed."""
    while True:
        try:
            pages = list(_pages(client, call, start, end, limit=NAMES))
            return [kv for page in pages for kv in page.kvs], pages[0].header.revision
        except Compacted:
            continue  # the revision of the first page is compacted: list them as of now


def values(client: Client, seconds: float, start: bytes, end: bytes) -> Iterator[Any]:
    """The same in pages, with values; each page may take `seconds`. Raises Compacted if their moment is compacted."""
    return _pages(client, seconds, start, end, limit=VALUES)


def _pages(client: Client, call: StoreCall | float, start: bytes, end: bytes, *, limit: int) -> Iterator[Any]:
    revision = 0
    while True:
        request = RANGE.request(key=start, range_end=end, limit=limit, revision=revision, keys_only=limit == NAMES)
        reply = client.ask(call if isinstance(call, StoreCall) else StoreCall(call), RANGE, request)
        yield reply
        if not reply.more:
            return
        revision = revision or reply.header.revision
        start = reply.kvs[-1].key + b"\0"
