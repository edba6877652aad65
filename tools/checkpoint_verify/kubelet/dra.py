"""dra_manager_state as each kubelet version judges it; the verdict of the newest is draState's own."""

from __future__ import annotations

from draState._kubelet.statefile import is_entries_form, judge
from draState._kubelet.syntax import Node, Object

from . import notes, versions
from .unverified import UnverifiedState
from .verdict import Judgement, damaged, valid

OLD_FORM = "pre-1.31"
TEXT_FORM_SINCE = 31


def is_old_form(document: Node) -> bool:
    """True if this is certainly the form of kubelet 1.26 to 1.30, whatever the file's name."""
    if not isinstance(document, Object) or not is_entries_form(document):
        return False
    entries = document.get("ENTRIES")
    return not isinstance(entries, list) or all(_is_claim(entry) for entry in entries)


def _is_claim(entry: Node) -> bool:
    return isinstance(entry, Object) and isinstance(entry.get("CLAIMUID"), str)


class ClaimState:
    """One DRA manager checkpoint, to be judged by any kubelet version."""

    def __init__(self, document: Node) -> None:
        self._file = judge(document)
        self._unverified = UnverifiedState(document, OLD_FORM, refused_since=TEXT_FORM_SINCE)

    def judge(self, minor: int) -> Judgement:
        """What kubelet 1.`minor` makes of the document."""
        return self._judge(minor).warn(*notes.about(minor, *self._file.decodes))

    def _judge(self, minor: int) -> Judgement:
        file, version = self._file, versions.name(minor)
        if file.damage:
            form = OLD_FORM if file.form == "entries" else file.form
            detail = f"Kubelet {version} refuses this file: {file.damage}."
            stored = None if file.computed is None else file.stored
            return damaged(form, file.reason, detail, file.computed, stored)
        if file.form == "entries":
            return self._unverified.judge(minor)
        if minor < TEXT_FORM_SINCE:
            detail = f"Kubelet {version} refuses this file as corrupted: it reads only the form before 1.31."
            return damaged(file.form, "other-version", detail, None, file.stored)
        loaded = valid(file.form, f"Kubelet {version} loads this file.", file.stored)
        if file.has_data:
            return loaded
        return loaded.warn("The file has no Data: kubelet takes it for an empty state and forgets all claims.")
