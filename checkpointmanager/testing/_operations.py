"""What a program did to a directory, as far as it matters for a power loss."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ._diskimage import DiskImage, Entry


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
