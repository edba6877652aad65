"""What every scenario has: a folder that is removed afterwards, and values that its clients rely on."""

from __future__ import annotations

import logging
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Generic, Protocol, Self, TypeVar

from .. import EventKind

PREFIX = "checkpoint-chaos-"

C = TypeVar("C")


class Cases(Generic[C]):
    """The crashes or faults of one scenario."""

    def __iter__(self) -> Iterator[C]:
        raise NotImplementedError

    def check(self, check: Callable[[C], object]) -> Self:
        """Call `check` for each of them. An exception gets a description of the crash or fault as a note."""
        for case in self:
            try:
                check(case)
            except Exception as error:
                error.add_note(str(case))
                raise
        return self


def acknowledge(value: Any) -> None:
    """Declare inside a scenario that `value` has been promised: a crash from now on must not lose it.

    It appears in `acknowledged` of every later crash and fault. Does nothing outside a scenario.
    """
    for listener in _listeners:
        listener.acknowledge(value)


class Listener(Protocol):
    def acknowledge(self, value: Any) -> None: ...

    def sync_failed(self, descriptor: int) -> None: ...


class Collected:
    """Collects only what was acknowledged."""

    def __init__(self) -> None:
        self.values: list[Any] = []

    def acknowledge(self, value: Any) -> None:
        self.values.append(value)

    def sync_failed(self, descriptor: int) -> None:
        """Ignored: nothing is recorded here."""


_listeners: list[Listener] = []


@contextmanager
def acknowledgements_to(listener: Listener) -> Iterator[None]:
    """Inside the block, `listener` receives what is acknowledged, and which injected syncs failed."""
    _listeners.append(listener)
    try:
        yield
    finally:
        _listeners.remove(listener)


def report_failed_sync(descriptor: int) -> None:
    """For a fault injector: the recorder does not see a call that was never made."""
    for listener in _listeners:
        listener.sync_failed(descriptor)


def fast_folder() -> str:
    """A folder in memory if possible: thousands of directories are created, and a sync there costs nothing."""
    return "/dev/shm" if os.access("/dev/shm", os.W_OK | os.X_OK) else tempfile.gettempdir()  # noqa: S108


@contextmanager
def folder_in(folder: str) -> Iterator[Path]:
    logging.getLogger("checkpointmanager").addFilter(_is_not_about_a_scenario)
    path = tempfile.mkdtemp(prefix=PREFIX, dir=folder)
    try:
        yield Path(path)
    finally:
        shutil.rmtree(path, ignore_errors=True)


def _is_not_about_a_scenario(record: logging.LogRecord) -> bool:
    """Drops the thousands of warnings that these folders are in memory."""
    forgetful = getattr(record, "event", None) == EventKind.FORGETFUL_FILE_SYSTEM
    return not (forgetful and PREFIX in getattr(record, "path", ""))


def close(given: Any) -> None:
    """Close what a setup opened for its scenario."""
    if hasattr(given, "close"):
        given.close()
