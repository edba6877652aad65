"""Forms that are recognised and can be read, but whose checksum algorithm is unknown here."""

from __future__ import annotations

from draState._kubelet.syntax import Node, Number, Object

from . import versions
from .verdict import Judgement, unknown

_LONGEST = 20  # digits of the largest 64-bit number


class UnverifiedState:
    """A document of such a form: unknown for every version, and refused for certain from one version on."""

    def __init__(self, document: Node, form: str, refused_since: int | None = None) -> None:
        stored = document.get("CHECKSUM") if isinstance(document, Object) else None
        text = stored.text if isinstance(stored, Number) else ""
        self._stored = int(text) if text.isdigit() and len(text) <= _LONGEST else None
        self._form = form
        self._refused_since = refused_since

    def judge(self, minor: int) -> Judgement:
        """Always unknown; also says if kubelet 1.`minor` is nevertheless known to refuse the file."""
        detail = f"The content can be read, but the checksum of form {self._form} is not verified here"
        if self._refused_since is None or minor < self._refused_since:
            return unknown(self._form, f"{detail}.", self._stored)
        detail = f"{detail}; kubelet {versions.name(minor)} does not read this form."
        return unknown(self._form, detail, self._stored, loads=False)
