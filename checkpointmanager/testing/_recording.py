"""What a program did to a directory, as far as it matters for a power loss, and the model that notices each change."""

from __future__ import annotations

import os
import stat
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

from ._diskimage import ROOT, DiskImage, Entry, Node, scan
from ._watch import inode_of, is_below

OUTSIDE = Entry(-1, "")  # where the directory itself has its name


@dataclass(frozen=True, slots=True)
class NameChange:
    """One atomic change of names in one directory: a create, link, rename, unlink, mkdir or rmdir."""

    text: str
    names: dict[Entry, int | None]  # the node of each name from now on; None if the name is gone

    @property
    def directory(self) -> int:
        return next(iter(self.names)).directory


@dataclass(frozen=True, slots=True)
class Write:
    """Bytes put into a file at an offset."""

    text: str
    node: int
    offset: int
    data: bytes

    def extent(self, content: bytes) -> tuple[int, int]:
        """The start and end of the part of `content` that this write touches."""
        return min(self.offset, len(content)), self.offset + len(self.data)

    def applied(self, content: bytes) -> bytes:
        padded = content.ljust(self.offset, b"\0")
        return padded[: self.offset] + self.data + padded[self.offset + len(self.data) :]


@dataclass(frozen=True, slots=True)
class Resize:
    """A file cut, or extended with NUL bytes."""

    text: str
    node: int
    size: int

    def extent(self, content: bytes) -> tuple[int, int]:
        return min(self.size, len(content)), max(self.size, len(content))

    def applied(self, content: bytes) -> bytes:
        return content[: self.size].ljust(self.size, b"\0")


@dataclass(frozen=True, slots=True)
class Sync:
    """An fsync or fdatasync of a file, or an fsync of a directory."""

    text: str
    node: int
    failed: bool = False


@dataclass(frozen=True, slots=True)
class Acknowledgement:
    """From here on a client relies on the value."""

    text: str
    value: Any


Change = Write | Resize
Operation = NameChange | Write | Resize | Sync | Acknowledgement


@dataclass(frozen=True, slots=True)
class Recording:
    """What was recorded. `before` was durable when the first operation began."""

    before: DiskImage
    operations: tuple[Operation, ...]
    nodes: dict[int, Any]  # every node that ever existed


class UnseenChange(Exception):
    """The directory was changed in a way that cannot be seen, so nothing can be proved about it.

    Make the change through `os`, open() or pathlib, in this process; the message names the file.
    """


class Shadow:
    """Starts from the directory as it is, and receives every change from then on."""

    def __init__(self, directory: str) -> None:
        self.root = os.path.realpath(directory)
        self._before, self._inodes = scan(self.root)
        self._nodes = dict(self._before.nodes)
        self.names = {**self._before.names, OUTSIDE: ROOT}
        self.contents = dict(self._before.contents)
        self.operations: list[Operation] = []
        self._refused: list[str] = []  # paths that appeared unseen

    def find(self, path: Any, base: int | None = None) -> Entry | None:
        """The entry of a path; None if it is outside the directory. `base` is the node that the path is relative to."""
        text = os.fsdecode(path)
        if base is None or os.path.isabs(text):
            parent, name = os.path.split(os.path.abspath(text))
            full = os.path.join(os.path.realpath(parent), name)
            if not is_below(full, self.root):
                return None
            base, text = ROOT, os.path.relpath(full, self.root)
        if text == ".":
            return next((entry for entry, node in self.names.items() if node == base), None)
        *folders, name = text.split("/")
        for folder in folders:
            base = self.names.get(Entry(base, folder), -1)
        return Entry(base, name)

    def at(self, entry: Entry) -> int:
        """The node of an entry."""
        if entry not in self.names:
            self.refuse(self.text(entry))
        return self.names[entry]

    def refuse(self, path: str) -> NoReturn:
        """Raises now, and again at the end: the program may catch the exception."""
        self._refused.append(path)
        raise self._unseen([path])

    def node_of(self, file: Any) -> int | None:
        """The node of a descriptor or path, following symbolic links; None if they lead outside."""
        inode = inode_of(file)
        return self._inodes.get(inode) if inode else None

    def path(self, node: int) -> str:
        """One of the names that a node has now, from the root."""
        if node == ROOT:
            return "."
        return next((path for path, number in self.image().walk() if number == node), "(an unlinked file)")

    def text(self, entry: Entry | None) -> str:
        if entry is None:
            return "(outside)"
        folder = self.path(entry.directory)
        return entry.name if folder == "." else f"{folder}/{entry.name}"

    def new(self, kind: str, status: os.stat_result, target: str = "") -> int:
        number = len(self._nodes)
        self._nodes[number] = Node(kind, stat.S_IMODE(status.st_mode), target)
        self._inodes[status.st_dev, status.st_ino] = number
        if kind == "file":
            self.contents[number] = b""
        return number

    def change(self, text: str, names: dict[Entry, int | None]) -> None:
        self.operations.append(NameChange(text, names))
        for entry, node in names.items():
            if node is None:
                del self.names[entry]
            else:
                self.names[entry] = node

    def put(self, node: int, offset: int, data: bytes) -> None:
        text = f"write {len(data)} bytes at {offset} to {self.path(node)}"
        self._alter(Write(text, node, offset, data))

    def resize(self, node: int | None, size: int) -> None:
        if node is not None and size != len(self.contents[node]):
            self._alter(Resize(f"truncate {self.path(node)} to {size}", node, size))

    def import_file(self, path: str) -> int:
        """Add a file that is about to be moved or linked in from outside."""
        image, _ = scan(path)
        node = self.new(image.nodes[ROOT].kind, os.lstat(path))
        if node in self.contents:
            self.put(node, 0, image.contents[ROOT])
        return node

    def image(self) -> DiskImage:
        return DiskImage(self._nodes, self.names, self.contents)

    def recording(self) -> Recording:
        """What was recorded. Raises UnseenChange if the directory differs from it."""
        if self._refused:
            raise self._unseen(self._refused)
        mirrored, real = self.image().identity(), scan(self.root)[0].identity()
        if mirrored != real:
            paths = sorted({str(entry[0]) for entry in set(mirrored) ^ set(real)})  # type: ignore[index]
            raise self._unseen(paths)
        return Recording(self._before, tuple(self.operations), self._nodes)

    def _unseen(self, paths: Sequence[str]) -> UnseenChange:
        return UnseenChange(
            f"{self.root}: {', '.join(paths)} changed in a way that cannot be recorded. Use the functions of `os`, "
            "open() or pathlib; other processes, mmap and code in C are not seen"
        )

    def _alter(self, operation: Write | Resize) -> None:
        self.operations.append(operation)
        self.contents[operation.node] = operation.applied(self.contents[operation.node])
