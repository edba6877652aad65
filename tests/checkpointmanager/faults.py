"""Makes the n-th system call fail, or the process die there, and keeps a record of all calls.

Works on real directories: there it sees every call of the file store and of its lock. (The functions of pyfakefs
refuse `dir_fd` once they are wrapped.)
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from enum import Enum, auto
from typing import Any, NamedTuple
from unittest import mock

from checkpointmanager._filestore import recycle

CALLS = (
    *("open", "write", "fsync", "close", "link", "rename", "unlink"),
    *("stat", "fstat", "read", "listdir", "mkdir", "truncate", "fchmod"),
)
_ABOUT = {"link": slice(2), "rename": slice(2), "exchange": slice(1, 3)}  # which arguments are names


class Call(NamedTuple):
    """One call: `name` of the function, and what it was about: a name, or a descriptor's number."""

    name: str
    about: str


class Mode(Enum):
    """When the failure comes. A close always closes first: Linux frees the descriptor even if it reports an error."""

    BEFORE = auto()  # the call was not made
    AFTER = auto()  # it was made, and then came a signal
    DEAD = auto()  # the process died before it: neither this call nor any later one is made


class Killed(BaseException):
    """Stands for SIGKILL: nothing catches it, and nothing that runs on its way has an effect."""


class Faults:
    """Fails call number `at` (from 0) of those made inside `injected`."""

    def __init__(self, failure: BaseException | None, at: int, mode: Mode = Mode.BEFORE) -> None:
        self.failure = failure
        self.at = at
        self.mode = mode
        self.calls: list[Call] = []
        self.failed: Call | None = None
        self.repeated_syncs: list[Call] = []  # of a descriptor whose fsync had failed
        self._failed_syncs: set[str] = set()
        self._guard = threading.Lock()  # a batch syncs in several threads

    def call(self, name: str, real: Any, arguments: tuple[Any, ...], options: dict[str, Any]) -> Any:
        call = Call(name, "->".join(str(argument) for argument in arguments[_ABOUT.get(name, slice(1))]))
        with self._guard:
            fails = len(self.calls) == self.at
            self.calls.append(call)
            if fails:
                self.failed = call
            self._watch_syncs(call, fails)
            dead = self.mode is Mode.DEAD and self.failed is not None
        if self.failure is None or not (fails or dead):
            return real(*arguments, **options)
        if self.mode is Mode.AFTER or (name == "close" and not dead):
            with suppress(OSError):
                real(*arguments, **options)
        raise self.failure

    def _watch_syncs(self, call: Call, fails: bool) -> None:
        if call.name == "close":
            self._failed_syncs.discard(call.about)
        if call.name == "fsync" and call.about in self._failed_syncs:
            self.repeated_syncs.append(call)
        if call.name == "fsync" and fails:
            self._failed_syncs.add(call.about)


@contextmanager
def injected(faults: Faults) -> Iterator[Faults]:
    """Inside, each of CALLS goes through `faults`; so do leases, and the exchange that Python has no function for."""

    def through(name: str, real: Any) -> Any:
        def call(*arguments: Any, **options: Any) -> Any:
            return faults.call(name, real, arguments, options)

        return call

    with ExitStack() as stack:
        for owner, name in (*((os, name) for name in CALLS), (recycle, "fcntl_at_once"), (recycle, "exchange")):
            stack.enter_context(mock.patch.object(owner, name, through(name, getattr(owner, name))))
        yield faults


def recorded() -> Faults:
    """Fails nothing."""
    return Faults(None, -1)


def open_descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))
