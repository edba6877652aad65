"""Records what a program does to a directory as a list of operations.

At the end the directory is compared with the record: a change that the recorder did not see (by another process,
through mmap, by a call it does not know) is an error, not a gap.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from . import _acknowledgements as acknowledgements
from ._filecalls import FileCalls
from ._namecalls import NameCalls
from ._operations import Acknowledgement, Recording
from ._shadow import Shadow
from ._watch import Call, Make, Watch

FILE_CALLS = (
    *("open", "write", "writev", "pwrite", "pwritev", "sendfile", "copy_file_range"),
    *("truncate", "ftruncate", "posix_fallocate", "fsync", "fdatasync"),
)
NAME_CALLS = ("link", "symlink", "rename", "replace", "unlink", "remove", "mkdir", "rmdir")


class Recorder:
    """Puts the calls of all threads in one order: each is made and noted before the next."""

    def __init__(self, directory: str) -> None:
        self._guard = threading.RLock()  # guards the three attributes below
        self._shadow = Shadow(directory)
        self._files = FileCalls(self._shadow)
        self._names = NameCalls(self._shadow, self._files)
        self._watch = Watch(directory, self._around, (*FILE_CALLS, *NAME_CALLS))

    @contextmanager
    def recording(self) -> Iterator[None]:
        with self._watch.watching(), acknowledgements.to(self):
            yield

    def result(self) -> Recording:
        return self._shadow.recording()

    def acknowledge(self, value: Any) -> None:
        with self._guard:
            self._shadow.operations.append(Acknowledgement(f"acknowledge {value!r}", value))

    def sync_failed(self, descriptor: int) -> None:
        """The sync was not made, and its caller got an error."""
        with self._guard:
            self._files.sync_failed(descriptor)

    def _around(self, call: Call, make: Make, arguments: tuple[Any, ...], options: dict[str, Any]) -> Any:
        note = getattr(self._files if call.name in FILE_CALLS else self._names, call.name)
        with self._guard:
            return note(make, *arguments, **options)
