"""What one look at one file has found. The rest of the tool only counts, sorts and prints these."""

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
    """What can be said about a file."""

    GOOD = "good"
    DAMAGED = "damaged"
    TOO_NEW = "too-new"  # written by a newer program: not damaged, but not for this installation
    UNKNOWN = "unknown"  # a kubelet form whose checksum algorithm is not known here
    UNREADABLE = "unreadable"  # could not look: permission, I/O, another file system, never the same twice
    FOREIGN = "foreign"  # somebody else's file: not state, so nothing is wrong with it


@dataclass(slots=True)
class Finding:
    """`header` is there for a whole checkpoint of ours, `kubelet` for a file of kubelet's.

    Of data it holds at most whose it is, where that was asked for.
    """

    path: str
    state: State
    size: int = 0
    modified: float = 0.0  # seconds since 1970, as the file system says
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
        """The state for people. What is unknown to programs is in words that it could not be verified."""
        return "unverified" if self.state is State.UNKNOWN else self.state.value

    @property
    def kind(self) -> str:
        if self.kubelet:
            return self.kubelet.kind
        return self.header.kind if self.header else ""
