"""Turns the arguments of a command line into files.

A KEY is written as file names and screens show it (`%2F` for a slash). It is looked up in the directory named before it
(`-d DIR KEY`, `DIR KEY`), by default the current one. An argument with a slash, or the name of an existing file, is a
FILE.
"""

from __future__ import annotations

import argparse
import os
from dataclasses import dataclass

from checkpointmanager.format import PREVIOUS, SUFFIX, decode_key

from .findings.examine import key_at, key_of
from .findings.scan import DEVICE_PLUGINS
from .registry import KUBELET_NAMES


class UsageError(Exception):
    """The arguments do not fit together; the exit code is 2."""


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
