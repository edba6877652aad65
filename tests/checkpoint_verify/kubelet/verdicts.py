"""A dra_manager_state judged twice: by checkpoint-verify, and by draState's import."""

from __future__ import annotations

from checkpoint_verify.kubelet import Verdict, inspect
from draState import KubeletStateInvalid, read_dra_manager_state

DRA = "dra_manager_state"
_WORDS = {Verdict.VALID: "valid", Verdict.UNKNOWN: "unverified", Verdict.DAMAGED: "damaged"}


def by_import(blob: bytes) -> str:
    """Anything but a state or a KubeletStateInvalid ends the test."""
    try:
        state = read_dra_manager_state(blob)
    except KubeletStateInvalid:
        return "damaged"
    return "valid" if state.checksum_verified else "unverified"


def by_tool(blob: bytes) -> str:
    """ "" if it takes the content for another of kubelet's files, in spite of the name."""
    found = inspect(blob, DRA)
    assert found is not None
    return _WORDS[found.verdict] if found.kind == DRA else ""


def agreed(blob: bytes) -> str:
    """The one verdict; the test ends if there are two."""
    imported, judged = by_import(blob), by_tool(blob)
    assert judged in (imported, ""), (judged, imported)
    return imported
