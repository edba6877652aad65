"""A finding with the file's bytes and data, all three from the same generation even while an agent writes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import orjson

from checkpointmanager._format.envelope import MAX_BYTES, open_sealed
from checkpointmanager._format.reason import Damaged, Reason, TooNew

from . import disk, exitcodes, words
from .documents import kubelet_document, path_members
from .examine import Circumstances, examine_path
from .finding import Finding, State

LOOKS = 8  # at a file that is replaced between any two looks


@dataclass(frozen=True, slots=True)
class Content:
    """`blob` is empty if there is nothing to read, or too much; `data` is None if there is no data."""

    found: Finding
    blob: bytes = b""
    data: Any = None

    @property
    def is_comparable(self) -> bool:
        return self.found.header is not None or (self.found.kubelet is not None and self.data is not None)


def load(path: str, circumstances: Circumstances) -> Content:
    """Examine a file and read it."""
    found = examine_path(path, circumstances)
    for _ in range(LOOKS):
        if found.state is State.UNREADABLE or found.reason == Reason.NOT_A_FILE or found.size > MAX_BYTES:
            return Content(found)
        try:
            blob = disk.read_whole(path, None)
        except OSError:  # the file was removed since; the next look reports that
            blob = b""
        if found.header is None:
            return Content(found, blob, found.kubelet.data if found.kubelet else None)
        try:
            header, data = open_sealed(blob, found.key)
            if header == found.header:
                return Content(found, blob, orjson.loads(data))
        except (Damaged, TooNew, orjson.JSONDecodeError):
            pass
        found = examine_path(path, circumstances)
    return Content(found)


def code_of(found: Finding) -> int:
    """The exit code for one file."""
    return exitcodes.of(damaged=found.state is State.DAMAGED, unseen=found.state is State.UNREADABLE)


def finding_document(found: Finding) -> dict[str, Any]:
    """A finding as JSON, without data."""
    return path_members(found.path) | {
        "state": found.state,
        "reason": found.reason,
        "detail": words.shown(found.detail),
        "key": found.key,
        "bytes": found.size,
        "header": _header_document(found),
        "kubelet": kubelet_document(found) if found.kubelet else None,
    }


def _header_document(found: Finding) -> dict[str, Any] | None:
    header = found.header
    if header is None:
        return None
    return {
        "kind": header.kind,
        "version": header.version,
        "readable_by": header.readable_by,
        "key": header.key,
        "generation": header.generation,
        "boot": header.boot,
        "written": header.written.isoformat(timespec="microseconds").replace("+00:00", "Z"),
    }
