"""An open() in Python that calls `os`, so that the recorder sees it; the real open() calls the kernel directly."""

from __future__ import annotations

import io
import os
from collections.abc import Callable
from typing import Any, Protocol

CREATED_MODE = 0o666  # before the umask, as in open()


class Watcher(Protocol):
    def concerns(self, file: Any) -> bool: ...

    def opened_elsewhere(self, descriptor: int) -> None: ...


def open_recorded(  # noqa: PLR0917  (the arguments are those of open)
    watcher: Watcher,
    real: Callable[..., Any],
    file: Any,
    mode: str = "r",
    buffering: int = -1,
    encoding: str | None = None,
    errors: str | None = None,
    newline: str | None = None,
    closefd: bool = True,
    opener: Callable[[Any, int], int] | None = None,
) -> Any:
    """Like open(); for files that do not concern the watcher, it calls the real open()."""
    if not watcher.concerns(file):
        elsewhere = real(file, mode, buffering, encoding, errors, newline, closefd, opener)
        watcher.opened_elsewhere(elsewhere.fileno())
        return elsewhere
    raw = RawFile(file, mode, closefd, opener)
    binary = "b" in mode
    if buffering == 0:
        if not binary:
            raise ValueError("can't have unbuffered text I/O")
        return raw
    buffered: Any
    if raw.readable() and raw.writable():
        buffered = io.BufferedRandom(raw)
    elif raw.writable():
        buffered = io.BufferedWriter(raw)
    else:
        buffered = io.BufferedReader(raw)
    if binary:
        return buffered
    text = io.TextIOWrapper(buffered, encoding, errors, newline, line_buffering=buffering == 1)
    text.mode = mode  # type: ignore[misc]
    return text


class RawFile(io.RawIOBase):
    """io.FileIO over the functions of `os`."""

    _closes = False  # until there is a descriptor: Python closes a file whose opening failed, too

    def __init__(self, file: Any, mode: str, closefd: bool, opener: Callable[[Any, int], int] | None) -> None:
        action = next((letter for letter in "rwax" if letter in mode), "")
        if not action:
            raise ValueError(f"invalid mode: {mode!r}")
        self.name = file
        self.mode = mode
        self._readable = action == "r" or "+" in mode
        self._writable = action != "r" or "+" in mode
        flags = {"r": 0, "w": os.O_CREAT | os.O_TRUNC, "a": os.O_CREAT | os.O_APPEND, "x": os.O_CREAT | os.O_EXCL}[
            action
        ]
        flags |= os.O_RDWR if self._readable and self._writable else os.O_WRONLY if self._writable else os.O_RDONLY
        if isinstance(file, int):
            self._descriptor = file
        elif opener:
            self._descriptor = opener(file, flags | os.O_CLOEXEC)
        else:
            self._descriptor = os.open(file, flags | os.O_CLOEXEC, CREATED_MODE)
        self._closes = closefd
        if action == "a":
            os.lseek(self._descriptor, 0, os.SEEK_END)

    def readable(self) -> bool:
        return self._readable

    def writable(self) -> bool:
        return self._writable

    def seekable(self) -> bool:
        return True

    def fileno(self) -> int:
        return self._descriptor

    def readinto(self, buffer: Any) -> int:
        piece = os.read(self._descriptor, len(buffer))
        buffer[: len(piece)] = piece
        return len(piece)

    def write(self, data: Any) -> int:
        return os.write(self._descriptor, data)

    def seek(self, position: int, how: int = os.SEEK_SET) -> int:
        return os.lseek(self._descriptor, position, how)

    def tell(self) -> int:
        return os.lseek(self._descriptor, 0, os.SEEK_CUR)

    def truncate(self, size: int | None = None) -> int:
        size = self.tell() if size is None else size
        os.truncate(self._descriptor, size)
        return size

    def close(self) -> None:
        if not self.closed:
            super().close()
            if self._closes:
                os.close(self._descriptor)
