"""What a directory holds at one moment: names, bytes, and which names are the same file.

A DiskImage is taken from a directory, or built from a choice of what survived a power loss, and written out again.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

ROOT = 0  # the node of the directory itself
SHOWN_BYTES = 60


class Entry(NamedTuple):
    """A name in a directory, which is identified by the number of its node."""

    directory: int
    name: str


@dataclass(frozen=True, slots=True)
class Node:
    """A file, directory or symbolic link, whatever names it has."""

    kind: str  # "file", "directory" or "symlink"
    mode: int
    target: str = ""  # of a symbolic link


@dataclass(frozen=True, slots=True)
class DiskImage:
    """`names` has the node of each name, `contents` the bytes of each file."""

    nodes: Mapping[int, Node]
    names: Mapping[Entry, int]
    contents: Mapping[int, bytes]

    def walk(self) -> Iterator[tuple[str, int]]:
        """Every path below the root with its node, a directory before its contents."""
        below: dict[int, list[tuple[str, int]]] = {}
        for entry, node in self.names.items():
            below.setdefault(entry.directory, []).append((entry.name, node))
        waiting = [("", ROOT)]
        while waiting:
            folder, number = waiting.pop()
            for name, node in sorted(below.get(number, ())):
                path = f"{folder}{name}"
                yield path, node
                if self.nodes[node].kind == "directory":
                    waiting.append((f"{path}/", node))

    def identity(self, ignored: Callable[[Entry], bool] = lambda _: False) -> tuple[object, ...]:
        """Two images whose identities are equal look the same to every program that takes no notice of some names."""
        first: dict[int, str] = {}
        seen = DiskImage(self.nodes, {entry: node for entry, node in self.names.items() if not ignored(entry)}, {})
        return tuple(
            (
                path,
                self.nodes[node].kind,
                self.nodes[node].target,
                first.setdefault(node, path),
                self.contents.get(node),
            )
            for path, node in seen.walk()
        )

    def files(self) -> dict[str, bytes]:
        """The bytes of each file by its path below the root."""
        return {path: self.contents[node] for path, node in self.walk() if self.nodes[node].kind == "file"}

    def write(self, directory: str) -> None:
        """Make an empty directory look like this image."""
        made: dict[int, str] = {}
        for path, node in self.walk():
            target = os.path.join(directory, path)
            kind, mode = self.nodes[node].kind, self.nodes[node].mode
            if kind == "directory":
                os.mkdir(target, mode)
            elif kind == "symlink":
                os.symlink(self.nodes[node].target, target)
            elif node in made:
                os.link(made[node], target)
            else:
                made[node] = target
                descriptor = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
                try:
                    os.write(descriptor, self.contents[node])
                finally:
                    os.close(descriptor)

    def __str__(self) -> str:
        first: dict[int, str] = {}
        lines = []
        for path, node in self.walk():
            text = _described(self.nodes[node], self.contents.get(node, b""))
            if (same := first.setdefault(node, path)) != path:
                text = f"the same file as {same}"
            lines.append(f"{path}: {text}")
        return "\n".join(lines) or "(empty)"


def scan(directory: str) -> tuple[DiskImage, dict[tuple[int, int], int]]:
    """The image of a directory, and the node of each (device, inode) in it."""
    nodes: dict[int, Node] = {}
    names: dict[Entry, int] = {}
    contents: dict[int, bytes] = {}
    numbers: dict[tuple[int, int], int] = {}

    def add(path: str) -> int:
        status = os.lstat(path)
        number = numbers.setdefault((status.st_dev, status.st_ino), len(numbers))
        if number in nodes:
            return number
        kind = _kind(status.st_mode)
        nodes[number] = Node(kind, stat.S_IMODE(status.st_mode), os.readlink(path) if kind == "symlink" else "")
        if kind == "directory":
            for name in sorted(os.listdir(path)):
                names[Entry(number, name)] = add(os.path.join(path, name))
        elif kind == "file":
            contents[number] = _bytes_of(path)
        return number

    add(directory)
    return DiskImage(nodes, names, contents), numbers


def _kind(mode: int) -> str:
    if stat.S_ISDIR(mode):
        return "directory"
    if stat.S_ISLNK(mode):
        return "symlink"
    if stat.S_ISREG(mode):
        return "file"
    raise ValueError("only files, directories and symbolic links can be recorded")


def _bytes_of(path: str) -> bytes:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        return os.read(descriptor, os.fstat(descriptor).st_size + 1)
    finally:
        os.close(descriptor)


def _described(node: Node, content: bytes) -> str:
    if node.kind == "directory":
        return "a directory"
    if node.kind == "symlink":
        return f"a link to {node.target}"
    if not content:
        return "empty"
    if not content.strip(b"\0"):
        return f"{len(content)} NUL bytes"
    shown = (
        content if len(content) <= SHOWN_BYTES else content[: SHOWN_BYTES // 2] + b"..." + content[-SHOWN_BYTES // 2 :]
    )
    return f"{len(content)} bytes, {shown.decode(errors='backslashreplace')!r}"
