"""Makes what is not a directory look like one: an etcd:// prefix, and a bundle.

Each is copied into a private folder, in which its name on the command line is a path, and every command reads it there.
Commands that change something open the store in etcd itself; a bundle is never changed.
"""

from __future__ import annotations

import argparse
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager

from . import bundle, etcd
from .findings import lock

_WORDS = ("paths", "targets", "directory")  # arguments that may name a directory or a file in it
_OUTPUTS = ("output", "prometheus")  # arguments that name a file to write
_SCHEMES = (etcd.SCHEME, bundle.SCHEME)


@contextmanager
def mirrored(arguments: argparse.Namespace) -> Iterator[None]:
    """Inside the block, every URL and bundle of the command line is also the path of a copy."""
    for name in _WORDS:
        value = getattr(arguments, name, None)
        if isinstance(value, list):
            setattr(arguments, name, [_as_url(word) for word in value])
        elif isinstance(value, str):
            setattr(arguments, name, _as_url(value))
    words = [word for word in _words(arguments) if word.startswith(_SCHEMES)]
    if not words:
        yield
        return
    _make_absolute(arguments)
    before = os.getcwd()
    with tempfile.TemporaryDirectory(prefix="checkpoint-verify-") as folder:
        os.chdir(folder)
        try:
            for place in dict.fromkeys(str(etcd.place_in(word)) for word in words if word.startswith(etcd.SCHEME)):
                etcd.copy(place)
            for path in dict.fromkeys(bundle.bundle_in(word) for word in words if word.startswith(bundle.SCHEME)):
                bundle.unpack(path, bundle.SCHEME + path)
            yield
        finally:
            os.chdir(before)
            lock.elsewhere.clear()


def _words(arguments: argparse.Namespace) -> list[str]:
    given = [getattr(arguments, name, None) for name in _WORDS]
    return [word for value in given for word in (value if isinstance(value, list) else [value]) if word]


def _as_url(word: str) -> str:
    """A bundle, or a file in one, as a URL with an absolute path; anything else as it is."""
    if word.startswith(etcd.SCHEME) or not bundle.bundle_in(word):
        return word
    return bundle.SCHEME + os.path.abspath(word.removeprefix(bundle.SCHEME))


def _make_absolute(arguments: argparse.Namespace) -> None:
    """Make the other paths of the command line absolute: they are relative to the current directory."""
    for name in (*_WORDS, *_OUTPUTS):
        value = getattr(arguments, name, None)
        if isinstance(value, list):
            setattr(arguments, name, [_absolute(word) for word in value])
        elif isinstance(value, str) and (name != "directory" or not value.startswith(_SCHEMES)):
            setattr(arguments, name, os.path.abspath(value))


def _absolute(word: str) -> str:
    return os.path.abspath(word) if not word.startswith(_SCHEMES) and os.path.lexists(word) else word
