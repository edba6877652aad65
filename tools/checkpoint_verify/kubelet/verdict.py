"""The verdict of one kubelet version on a file, and the finding that callers get."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum

from .plain import Plain


class Verdict(StrEnum):
    """Whether kubelet starts with this file."""

    VALID = "valid"
    DAMAGED = "damaged"
    UNKNOWN = "unknown"  # not verified: no checksum, or an unknown algorithm; never damage


@dataclass(frozen=True, slots=True)
class KubeletFile:
    """One kubelet state file, as the requested kubelet version would judge it.

    `loads_in` says for each known minor version ("1.30" …) whether it loads the file, assuming that its configured
    policy matches: True, False, or None if that is unknown or depends on a feature gate.
    """

    kind: str
    format: str  # "v4"; "" if unknown
    verdict: Verdict
    reason: str  # a machine word such as checksum-mismatch; "" if valid
    detail: str  # one sentence for the operator
    expected: str  # the checksum that kubelet computes from the content; "" if there is none to compute
    actual: str  # the checksum that kubelet reads from the file; "" if it cannot
    warnings: tuple[str, ...]
    loads_in: Mapping[str, bool | None]
    data: Plain  # the content as JSON values, the text inside Data decoded; None if unreadable
    kubelet_version: str  # the version whose verdict this is


@dataclass(frozen=True, slots=True)
class Judgement:
    """What one kubelet version makes of one document."""

    verdict: Verdict
    format: str = ""
    reason: str = ""
    detail: str = ""
    expected: str = ""
    actual: str = ""
    warnings: tuple[str, ...] = ()
    loads: bool | None = None

    def warn(self, *sentences: str) -> Judgement:
        """The same judgement with more warnings; empty ones are ignored."""
        return replace(self, warnings=self.warnings + tuple(filter(None, sentences)))


def valid(form: str, detail: str, stored: int, expected: int | None = None) -> Judgement:
    """Kubelet loads the file; pass `expected` if the stored checksum is not the computed one."""
    computed = stored if expected is None else expected
    return Judgement(Verdict.VALID, form, "", detail, str(computed), str(stored), loads=True)


def damaged(form: str, reason: str, detail: str, expected: int | None = None, actual: int | None = None) -> Judgement:
    """Kubelet refuses the file."""
    wanted = "" if expected is None else str(expected)
    found = "" if actual is None else str(actual)
    return Judgement(Verdict.DAMAGED, form, reason, detail, wanted, found, loads=False)


def unknown(form: str, detail: str, actual: int | None = None, loads: bool | None = None) -> Judgement:
    """The form is recognised, but its checksum cannot be verified."""
    found = "" if actual is None else str(actual)
    return Judgement(Verdict.UNKNOWN, form, "unverified-form", detail, "", found, loads=loads)
