"""Many names at once, page by page and all as of one moment."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from .client import Call, Client
from .faults import Compacted
from .wire import RANGE

NAMES = 1000  # per page
VALUES = 64  # per page: each may be as large as a request


def names(client: Client, call: Call, start: bytes, end: bytes) -> tuple[list[Any], int]:
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


def _pages(client: Client, call: Call | float, start: bytes, end: bytes, *, limit: int) -> Iterator[Any]:
    revision = 0
    while True:
        request = RANGE.request(key=start, range_end=end, limit=limit, revision=revision, keys_only=limit == NAMES)
        reply = client.ask(call if isinstance(call, Call) else Call(call), RANGE, request)
        yield reply
        if not reply.more:
            return
        revision = revision or reply.header.revision
        start = reply.kvs[-1].key + b"\0"
