"""A disk that refuses some calls, for the time of a with block."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any
from unittest import mock


@contextmanager
def failing(
    name: str, error: Callable[[], BaseException], when: Callable[[Any], bool] = lambda _: True
) -> Iterator[None]:
    """Inside, the system call fails if `when` is true of its first argument; with an error of its own each time."""
    real = getattr(os, name)

    def call(first: Any, *arguments: Any, **options: Any) -> Any:
        if when(first):
            raise error()
        return real(first, *arguments, **options)

    with mock.patch.object(os, name, call):
        yield


def io_error() -> OSError:
    return OSError(errno.EIO, os.strerror(errno.EIO))


def no_space() -> OSError:
    return OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def full() -> AbstractContextManager[None]:
    return failing("write", no_space)


def unsynced(error: Callable[[], BaseException] = io_error) -> AbstractContextManager[None]:
    """The names are changed, but whether that survives a power loss is not known."""
    return failing("fsync", error, lambda descriptor: stat.S_ISDIR(os.fstat(descriptor).st_mode))


def undeletable(*keys: str) -> AbstractContextManager[None]:
    return failing("unlink", no_space, lambda name: name in {f"{key}.json" for key in keys})
