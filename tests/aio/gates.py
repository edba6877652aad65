"""Places where threads wait until the test lets them go, so nothing here depends on the clock."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest import mock

LIMIT = 120.0  # seconds; only a deadlock takes that long


class Gate:
    """Holds every thread that calls it, and counts those inside."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._open = False
        self.inside = 0
        self.most = 0
        self.passed = 0

    def __call__(self, *_: object) -> None:
        with self._changed:
            self.inside += 1
            self.most = max(self.most, self.inside)
            self._changed.wait_for(lambda: self._open, LIMIT)
            self.inside -= 1
            self.passed += 1

    def open(self) -> None:
        with self._changed:
            self._open = True
            self._changed.notify_all()


@contextmanager
def held_syncs() -> Iterator[Gate]:
    """Every sync waits at the gate. Nothing reaches a disk."""
    gate = Gate()
    with mock.patch.object(os, "fsync", gate), mock.patch.object(os, "fdatasync", gate):
        try:
            yield gate
        finally:
            gate.open()


def new_files(directory: Path) -> int:
    """How many are written, but do not have their names yet."""
    return sum(name.startswith(".tmp-") for name in os.listdir(directory))


async def until(condition: Callable[[], bool]) -> None:
    """Let the loop and the threads go on until the condition holds."""
    async with asyncio.timeout(LIMIT):
        while not condition():  # noqa: ASYNC110 - threads change it
            await asyncio.sleep(0.001)
