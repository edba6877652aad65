"""Puts something around the calls that a program makes to the operating system, and always takes it away again.

On pyfakefs `os` is a stand-in with the same functions, so the same code works there.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from types import ModuleType
from typing import Any

Function = Callable[..., Any]
Wrap = Callable[[str, Function], Function]  # the call's name and the real function -> what is called in its place

# Functions that are no call of `os`: they take a directory's descriptor and swap two names in it (renameat2).
EXCHANGES = ("checkpointmanager._filestore.system.exchange",)
EXCHANGE = "exchange"


@contextmanager
def wrapped(names: Iterable[str], wrap: Wrap, past_os: Mapping[str, str]) -> Iterator[None]:
    """Inside, each of these functions of `os` is what `wrap` made of it.

    So are those of `past_os`, where they exist: dotted names, with the name of the call that they make.
    """
    with ExitStack() as stack:
        for name in names:
            if hasattr(os, name):
                stack.enter_context(_attribute(os, name, wrap(name, getattr(os, name))))
        for dotted, name in past_os.items():
            if (real := _found(dotted)) is not None:
                stack.enter_context(_everywhere(real, wrap(name, real)))
        yield


@contextmanager
def replaced(owner: Any, name: str, value: Any) -> Iterator[None]:
    """Like mock.patch.object: an attribute that the owner only inherited is taken away again, not copied."""
    own = name in vars(owner)
    before = getattr(owner, name)
    setattr(owner, name, value)
    try:
        yield
    finally:
        if own:
            setattr(owner, name, before)
        else:
            delattr(owner, name)


def is_faked() -> bool:
    """True while pyfakefs stands in for the file system."""
    return not isinstance(os, ModuleType)


def descriptors_of(inodes: Iterable[tuple[int, int]]) -> dict[int, tuple[int, int]]:
    """The open descriptors of these (device, inode) pairs: what was opened before anybody watched."""
    wanted = set(inodes)
    found: dict[int, tuple[int, int]] = {}
    for descriptor in _descriptors():
        with suppress(OSError):
            status = os.fstat(descriptor)
            if (status.st_dev, status.st_ino) in wanted:
                found[descriptor] = (status.st_dev, status.st_ino)
    return found


def is_below(path: str, root: str) -> bool:
    return path == root or path.startswith(root.rstrip("/") + "/")


def _descriptors() -> list[int]:
    for folder in ("/proc/self/fd", "/dev/fd"):
        with suppress(OSError):
            return [int(name) for name in os.listdir(folder)]
    return list(range(3, 256))  # pyfakefs, whose first three are not files


@contextmanager
def _attribute(owner: Any, name: str, wrapper: Function) -> Iterator[None]:
    """Whoever asks whether the function knows `dir_fd` gets the same answer as before."""
    real = getattr(owner, name)
    able = [group for group in (os.supports_dir_fd, os.supports_follow_symlinks, os.supports_fd) if real in group]
    with replaced(owner, name, wrapper):
        for group in able:
            group.add(wrapper)
        try:
            yield
        finally:
            for group in able:
                group.discard(wrapper)


def _found(dotted: str) -> Function | None:
    module, _, name = dotted.rpartition(".")
    try:
        function: Function | None = getattr(importlib.import_module(module), name, None)
    except ImportError:
        return None
    return function


@contextmanager
def _everywhere(real: Function, wrapper: Function) -> Iterator[None]:
    """In every module of its package that has the function, under whatever name it was imported."""
    package = real.__module__.partition(".")[0]
    modules = [module for name, module in list(sys.modules.items()) if name.partition(".")[0] == package]
    with ExitStack() as stack:
        for module in modules:
            for name in [name for name, value in list(vars(module).items()) if value is real]:
                stack.enter_context(replaced(module, name, wrapper))
        yield
