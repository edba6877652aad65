"""Where scenarios run: thousands of new folders, each removed after its check."""

from __future__ import annotations

import logging
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from .._events import EventKind, logger

PREFIX = "checkpoint-chaos-"


def fast_folder() -> str:
    """A folder in memory if possible: thousands of directories are created, and a sync there costs nothing."""
    return "/dev/shm" if os.access("/dev/shm", os.W_OK | os.X_OK) else tempfile.gettempdir()  # noqa: S108


@contextmanager
def folder_in(folder: str) -> Iterator[Path]:
    logger.addFilter(_about_the_workspace)
    path = tempfile.mkdtemp(prefix=PREFIX, dir=folder)
    try:
        yield Path(path)
    finally:
        shutil.rmtree(path, ignore_errors=True)


def close(given: Any) -> None:
    """Close what a setup opened for its scenario."""
    if hasattr(given, "close"):
        given.close()


def _about_the_workspace(record: logging.LogRecord) -> bool:
    """Drops the thousands of warnings that these folders are in memory."""
    forgetful = getattr(record, "event", None) == EventKind.FORGETFUL_FILE_SYSTEM
    return not (forgetful and PREFIX in getattr(record, "path", ""))
