"""Turns the arguments of a command line into files.

A KEY is written as file names and screens show it (`%2F` for a slash). It is looked up in the directory named before it
(`-d DIR KEY`, `DIR KEY`), by default the current one. An argument with a slash, or the name of an existing file, is a
FILE.

What is not a directory, an etcd:// prefix or a bundle, is copied into a private folder in which its name on the command
line is a path, so every command reads it like one. Commands that change something open the store in etcd itself; a
bundle is never changed.
"""

from __future__ import annotations

import argparse
import os
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from checkpointmanager.format import PREVIOUS, SUFFIX, decode_key

from . import bundle, etcd
from .exitcodes import UsageError
from .findings.examine import key_at, key_of
from .registry import DEVICE_PLUGINS, KUBELET_NAMES

_WORDS = ("paths", "targets", "directory")  # arguments that may name a directory or a file in it
_OUTPUTS = ("output", "prometheus")  # arguments that name a file to write
_SCHEMES = (etcd.SCHEME, bundle.SCHEME)


@dataclass(frozen=True, slots=True)
class Target:
    """One file, by path, with the key as its name shows it ("" if there is none)."""

    path: str
    key: str

    @property
    def real_key(self) -> str:
        """The key itself, for the library."""
        return decode_key(self.key) or ""

    @property
    def directory(self) -> str:
        return os.path.dirname(self.path) or "."

    @property
    def previous(self) -> str:
        """The path of the previous generation."""
        return os.path.join(self.directory, PREVIOUS + self.key)


def add_directory(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-d", "--directory", metavar="DIR", help="the directory in which to look up KEYs (default: .)")


def resolve(given: list[str], directory: str | None) -> tuple[list[Target], str | None]:
    """The targets, and the directory that was named, if any."""
    targets: list[Target] = []
    for word in given:
        if _is_directory(word) and not (directory and decode_key(word) is not None):
            directory = word
        elif decode_key(word) is None or (directory is None and os.path.lexists(word)):
            targets.append(_file(word))
        else:
            targets.append(_keyed(word, directory or "."))
    return targets, directory


def _is_directory(word: str) -> bool:
    """A folder called <key>.json is taken for a misplaced checkpoint, unless the path ends with a slash."""
    return os.path.isdir(word) and not key_of(os.path.basename(word))


def one(given: list[str], directory: str | None) -> Target:
    """Exactly one target."""
    targets, _ = resolve(given, directory)
    if len(targets) != 1:
        raise UsageError(f"give one KEY or FILE, not {len(targets)}")
    return targets[0]


def _file(path: str) -> Target:
    return Target(path, key_at(path))


def _keyed(key: str, directory: str) -> Target:
    if key in KUBELET_NAMES:
        below = os.path.join(directory, DEVICE_PLUGINS, key)
        return Target(below if os.path.lexists(below) else os.path.join(directory, key), "")
    path = os.path.join(directory, key + SUFFIX)
    if not os.path.lexists(path) and key.endswith(SUFFIX):  # the file's name instead of the key
        return Target(os.path.join(directory, key), key_at(key))
    return Target(path, key)


@contextmanager
def mirrored(arguments: argparse.Namespace) -> Iterator[None]:
    """Inside the block, every URL and bundle of the command line is also the path of a copy."""
    _replace(arguments, _WORDS, _as_url)
    words = [word for word in _words(arguments) if word.startswith(_SCHEMES)]
    if not words:
        yield
        return
    # The other paths of the command line are relative to the current directory, which changes.
    _replace(arguments, ("paths", "targets"), _absolute_if_file)
    _replace(arguments, ("directory", *_OUTPUTS), _absolute)
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


def _words(arguments: argparse.Namespace) -> list[str]:
    given = [getattr(arguments, name, None) for name in _WORDS]
    return [word for value in given for word in (value if isinstance(value, list) else [value]) if word]


def _as_url(word: str) -> str:
    """A bundle, or a file in one, as a URL with an absolute path; anything else as it is."""
    if word.startswith(etcd.SCHEME) or not bundle.bundle_in(word):
        return word
    return bundle.SCHEME + os.path.abspath(word.removeprefix(bundle.SCHEME))


def _replace(arguments: argparse.Namespace, names: Sequence[str], change: Callable[[str], str]) -> None:
    """Replace every word in these arguments."""
    for name in names:
        value = getattr(arguments, name, None)
        if isinstance(value, list):
            setattr(arguments, name, [change(word) for word in value])
        elif isinstance(value, str):
            setattr(arguments, name, change(value))


def _absolute(path: str) -> str:
    return path if path.startswith(_SCHEMES) else os.path.abspath(path)


def _absolute_if_file(word: str) -> str:
    return _absolute(word) if os.path.lexists(word) else word
