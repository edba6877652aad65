"""The result of examining one file. The rest of the tool only counts, sorts and prints findings."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from enum import StrEnum
from errno import ENOENT
from typing import TYPE_CHECKING, Any

import orjson

from checkpointmanager.format import Header, open_any

from .. import exitcodes
from ..screens import phrases
from .damage import UNRECOGNISED

if TYPE_CHECKING:
    from ..registry import KubeletFile

TOO_NEW = "too-new"  # the reason


class State(StrEnum):
    """What is known about a file."""

    GOOD = "good"
    DAMAGED = "damaged"
    TOO_NEW = "too-new"  # written by a newer program: not damaged, but this installation cannot read it
    UNKNOWN = "unknown"  # a form of kubelet's or NVIDIA's whose checksum cannot be verified here
    UNREADABLE = "unreadable"  # could not look: permission, I/O, another file system, or changing all the time
    FOREIGN = "foreign"  # another program's file: not state, so nothing is wrong with it


@dataclass(frozen=True, slots=True)
class Subject:
    """Whose state a file holds. `claims` are namespace/name; `phase` is how far a driver got.

    `source` is "" for the undamaged file itself.
    """

    claims: tuple[str, ...] = ()
    pods: tuple[str, ...] = ()
    devices: tuple[str, ...] = ()
    phase: str = ""
    source: str = ""

    def __str__(self) -> str:
        parts = [
            f"{noun}{'s' if len(values) > 1 else ''} {phrases.some(values)}"
            for noun, values in (("claim", self.claims), ("pod", self.pods), ("device", self.devices))
            if values
        ]
        parts += [phrases.shown(self.phase)] if self.phase else []
        return ", ".join(parts) + (f" ({self.source})" if self.source else "")


@dataclass(slots=True)
class Finding:
    """`header` is set for a whole checkpoint, `kubelet` for a file of kubelet or NVIDIA's driver.

    `key` is its name as files and screens show it: `ns%2Fpod` for the key ns/pod.

    It holds the bytes only if they were requested.
    """

    path: str
    state: State
    key: str = ""
    header: Header | None = None
    kubelet: KubeletFile | None = None
    reason: str = ""
    detail: str = ""
    expected: str = ""
    actual: str = ""
    warnings: tuple[str, ...] = ()
    errno: int = 0
    status: os.stat_result | None = None  # of the file that was read
    waits: bool = False  # in the journal: the file is older, torn or missing until an owner puts it in place
    blob: bytes = field(default=b"", repr=False)  # empty if there is nothing to read, or too much

    @property
    def word(self) -> str:
        """The state as people read it: UNKNOWN is "unverified"; only damage is "damaged"."""
        if self.reason == UNRECOGNISED:
            return "not a checkpoint"
        if self.errno == ENOENT:
            return "missing"
        return "unverified" if self.state is State.UNKNOWN else self.state.value.replace("-", " ")

    @property
    def data(self) -> Any:
        """Parsed at each call. None if there is no data, or if the bytes were not requested."""
        if self.kubelet:
            return self.kubelet.data
        return orjson.loads(open_any(self.blob)[1]) if self.header and self.blob else None

    @property
    def size(self) -> int:
        if self.waits:
            return len(self.blob)
        return self.status.st_size if self.status else 0

    @property
    def modified(self) -> float:
        """Seconds since 1970, from the file system."""
        return self.status.st_mtime if self.status else 0.0

    @property
    def kind(self) -> str:
        if self.kubelet:
            return self.kubelet.kind
        return self.header.kind if self.header else ""

    @property
    def exit_code(self) -> int:
        return exitcodes.of(damaged=self.state is State.DAMAGED, unseen=self.state is State.UNREADABLE)
