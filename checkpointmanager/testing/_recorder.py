"""Records what a program does to a directory as a list of operations.

At the end the directory is compared with the record: a change that the recorder did not see (by another process,
through mmap, by a call it does not know) is an error, not a gap.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

from . import _acknowledgements as acknowledgements
from ._filecalls import FileCalls
from ._files import open_recorded
from ._namecalls import NameCalls
from ._operations import Acknowledgement, Recording
from ._oscalls import EXCHANGE, EXCHANGES, OF_TWO_DESCRIPTORS, wrapped
from ._shadow import Shadow

FILE_CALLS = (
    *("open", "close", "dup", "dup2", "lseek", "read", "readv", "fsync", "fdatasync", "sync", "truncate", "ftruncate"),
    *("write", "writev", "pwrite", "pwritev", "sendfile", "copy_file_range", "splice", "posix_fallocate"),
)
NAME_CALLS = ("link", "symlink", "rename", "replace", "unlink", "remove", "mkdir", "rmdir")
OF_ONE_PATH = frozenset({"open", "truncate", "unlink", "remove", "mkdir", "rmdir"})


class Recorder:
    """Puts the calls of all threads in one order: each is made and noted before the next."""

    def __init__(self, directory: str, exchanges: Iterable[str] = EXCHANGES) -> None:
        self._exchanges = dict.fromkeys(exchanges, EXCHANGE)
        self._guard = threading.RLock()  # guards the three attributes below
        self._shadow = Shadow(directory)
        self._files = FileCalls(self._shadow)
        self._names = NameCalls(self._shadow, self._files)

    @contextmanager
    def recording(self) -> Iterator[None]:
        with (
            wrapped((*FILE_CALLS, *NAME_CALLS), self._wrap, self._exchanges, partial(partial, open_recorded, self)),
            acknowledgements.to(self),
        ):
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

    def concerns(self, file: Any) -> bool:
        """True for an open descriptor or a path below the directory."""
        return (self._files.handle(file) if isinstance(file, int) else self._files.find(file)) is not None

    def _wrap(self, name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        note = getattr(self._files if name in FILE_CALLS else self._names, name)

        def call(*arguments: Any, **options: Any) -> Any:
            if arguments and not self._may_concern(name, arguments, options.get("dir_fd")):
                result = real(*arguments, **options)  # without the guard: the call may block, on a pipe for instance
                if name == "open":
                    self._files.handles.pop(result, None)
                return result
            with self._guard:
                return note(real, *arguments, **options)

        return call

    def _may_concern(self, name: str, arguments: tuple[Any, ...], dir_fd: int | None) -> bool:
        file = arguments[0]
        if isinstance(file, int):
            named = arguments[: 2 if name in OF_TWO_DESCRIPTORS else 1]
            return any(self._files.handle(descriptor) for descriptor in named)
        return name not in OF_ONE_PATH or self._files.find(file, dir_fd) is not None
