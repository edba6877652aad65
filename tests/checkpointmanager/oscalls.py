"""The system calls that change or sync a directory, seen from Python just before and just after they are made."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest import mock

from checkpointmanager._filestore import recycle

# All that a file store and its lock use, apart from reading.
OSCALLS = ("open", "write", "fsync", "close", "link", "rename", "unlink", "stat", "mkdir", "listdir", "truncate")

Seen = Callable[[str, tuple[Any, ...]], object]


def _nothing(*_: object) -> None:
    pass


@contextmanager
def watched(before: Seen = _nothing, after: Callable[[str, tuple[Any, ...], Any], object] = _nothing) -> Iterator[None]:
    """Inside, `before` and `after` are called around each of OSCALLS and each exchange, in the thread that makes it."""

    def watching(name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def made(*arguments: Any, **options: Any) -> Any:
            before(name, arguments)
            result = call(*arguments, **options)
            after(name, arguments, result)
            return result

        return made

    with ExitStack() as stack:
        for owner, name in (*((os, name) for name in OSCALLS), (recycle, "exchange")):
            stack.enter_context(mock.patch.object(owner, name, watching(name, getattr(owner, name))))
        yield
