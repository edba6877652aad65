"""The result of examining one file. The rest of the tool only counts, sorts and prints findings."""

from __future__ import annotations

import os
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from checkpointmanager._format.envelope import Header

from .kubelet import KubeletFile

if TYPE_CHECKING:
    from .subject import Subject


class State(StrEnum):
    """What is known about a file."""

    GOOD = "good"
    DAMAGED = "damaged"
    TOO_NEW = "too-new"  # written by a newer program: not damaged, but this installation cannot read it
    UNKNOWN = "unknown"  # a form of kubelet's or NVIDIA's whose checksum cannot be verified here
    UNREADABLE = "unreadable"  # could not look: permission, I/O, another file system, or changing all the time
    FOREIGN = "foreign"  # another program's file: not state, so nothing is wrong with it


@dataclass(slots=True)
class Finding:
    """`header` is set for a whole checkpoint, `kubelet` for a file of kubelet or NVIDIA's driver.

    It holds no data, at most the subject if that was requested.
    """

    path: str
    state: State
    size: int = 0
    modified: float = 0.0  # seconds since 1970, from the file system
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
    subject: Subject | None = None

    @property
    def word(self) -> str:
        """The state as people read it: UNKNOWN is "unverified"."""
        return "unverified" if self.state is State.UNKNOWN else self.state.value

    @property
    def kind(self) -> str:
        if self.kubelet:
            return self.kubelet.kind
        return self.header.kind if self.header else ""
