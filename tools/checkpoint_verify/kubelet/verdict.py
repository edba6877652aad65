"""The kinds of files, the kubelet versions whose way of reading is known, and what one version makes of one file."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, NamedTuple

from draState.kubelet import Decoded, JsonPath, Node, Number, Object, spelled

DRA = "dra_manager_state"
CPU = "cpu_manager_state"
MEMORY = "memory_manager_state"
DEVICES = "kubelet_internal_checkpoint"
ALLOCATED = "allocated_pods_state"
ACTUATED = "actuated_pods_state"
POD_STATUS = "pod_status_manager_state"
HEALTH = "dra_health_state"
NVIDIA = "nvidia_checkpoint"  # not kubelet's, but beside its files on many nodes
POD_KINDS = (ALLOCATED, ACTUATED, POD_STATUS)

KUBELET_NAMES = (DRA, CPU, MEMORY, DEVICES, *POD_KINDS, HEALTH)  # each kind is the name of its file
DEVICE_PLUGINS = "device-plugins"  # the folder below kubelet's in which the file DEVICES is
NVIDIA_NAME = "checkpoint.json"
_NVIDIA_FOLDER = ".nvidia.com"  # gpu.nvidia.com, compute-domain.nvidia.com
KNOWN_NAMES = frozenset({*KUBELET_NAMES, NVIDIA_NAME})


def kind_at(path: str) -> str:
    """The kind of the file that belongs at this path; "" if no known program keeps one there."""
    name = os.path.basename(path)
    if name == NVIDIA_NAME and os.path.dirname(os.path.abspath(path)).endswith(_NVIDIA_FOLDER):
        return NVIDIA
    return name if name in KUBELET_NAMES else ""


class Consequence(NamedTuple):
    """`now` is a sentence without its full stop; `lost` ends the sentence "move the file away; then …"."""

    now: str
    lost: str
    stops_kubelet: bool = True
    of_kubelet: bool = True
    leaves_orphans: bool = False  # drivers keep holding devices for claims that the reader of this file has forgotten


_PODS = Consequence(
    "Kubelet panics when it starts, unless in-place resizing of pods is turned off",
    "kubelet forgets resizes in flight and starts from the pod specs",
)

CONSEQUENCES = {
    CPU: Consequence(
        "The CPU manager refuses this file, and kubelet does not start",
        "kubelet assigns CPUs again; running pods keep theirs only until then",
    ),
    MEMORY: Consequence(
        "The memory manager refuses this file, and kubelet does not start",
        "kubelet assigns NUMA memory again; running pods are not counted until they restart",
    ),
    DRA: Consequence(
        "The DRA manager refuses this file, and kubelet does not start",
        "kubelet forgets which claims are prepared, and never unprepares the ones from before",
        leaves_orphans=True,
    ),
    DEVICES: Consequence(
        "The device manager logs this and continues: kubelet starts, but does not know which devices running pods have",
        "kubelet learns the devices again when their plugins register; it may assign those of running pods twice",
        stops_kubelet=False,
    ),
    ALLOCATED: _PODS,
    ACTUATED: _PODS,
    POD_STATUS: _PODS,
    HEALTH: Consequence(
        "Kubelet logs this and starts without device health, until the drivers report it again",
        "kubelet starts without device health, as it does with this file",
        stops_kubelet=False,
    ),
    NVIDIA: Consequence(
        "NVIDIA's DRA driver exits at every start, so no pod gets a device from it",
        "the driver forgets which claims it has prepared, and what it did to the devices for them",
        stops_kubelet=False,
        of_kubelet=False,
    ),
}


OLDEST, NEWEST = 30, 37
MINORS = tuple(range(OLDEST, NEWEST + 1))

_VERSION = re.compile(r"v?1\.([0-9]{1,3})(?:[.+-].*)?", re.ASCII)


def version_name(minor: int) -> str:
    """The version as people write it: 37 -> "1.37"."""
    return f"1.{minor}"


def parse_version(text: str | None) -> int:
    """The minor number of "1.35", "v1.36.2", "1.37.0-rc.1"; None is the newest. Raises ValueError if unknown."""
    if text is None:
        return NEWEST
    found = _VERSION.fullmatch(text.strip())
    if found is None or int(found.group(1)) not in MINORS:
        known = ", ".join(map(version_name, MINORS))
        raise ValueError(f"unknown kubelet version {text!r}; known versions: {known}")
    return int(found.group(1))


class Verdict(StrEnum):
    """Whether kubelet starts with this file."""

    VALID = "valid"
    DAMAGED = "damaged"
    UNKNOWN = "unknown"  # not verified: no checksum, or an unknown algorithm; never damage


@dataclass(frozen=True, slots=True)
class Judgement:
    """What one kubelet version makes of one document."""

    verdict: Verdict
    format: str = ""  # "v4"; "" if unknown
    reason: str = ""  # a machine word such as checksum-mismatch; "" if valid
    detail: str = ""  # one sentence for the operator
    expected: str = ""  # the checksum that kubelet computes from the content; "" if there is none to compute
    actual: str = ""  # the checksum that kubelet reads from the file; "" if it cannot
    warnings: tuple[str, ...] = ()
    loads: bool | None = None

    def warn(self, *sentences: str) -> Judgement:
        """The same judgement with more warnings; empty ones are ignored."""
        return replace(self, warnings=self.warnings + tuple(filter(None, sentences)))


@dataclass(frozen=True, slots=True, kw_only=True)
class KubeletFile(Judgement):
    """One kubelet state file, with the judgement of the requested kubelet version.

    `loads_in` says for each known minor version ("1.30" …) whether it loads the file, assuming that its configured
    policy matches: True, False, or None if that is unknown or depends on a feature gate.
    """

    kind: str
    loads_in: Mapping[str, bool | None]
    data: Any  # the content as JSON values, the text inside Data decoded; None if unreadable
    kubelet_version: str  # the version whose verdict this is

    @property
    def of_kubelet(self) -> bool:
        """False for a driver's file, which kubelet never reads."""
        return self.consequence.of_kubelet

    @property
    def consequence(self) -> Consequence:
        return CONSEQUENCES[self.kind]


def valid(form: str, detail: str, stored: int, expected: int | None = None) -> Judgement:
    """Kubelet loads the file; pass `expected` if the stored checksum is not the computed one."""
    computed = stored if expected is None else expected
    return Judgement(Verdict.VALID, form, "", detail, str(computed), str(stored), loads=True)


def damaged(form: str, reason: str, detail: str, expected: int | None = None, actual: int | None = None) -> Judgement:
    """Kubelet refuses the file."""
    wanted = "" if expected is None else str(expected)
    found = "" if actual is None else str(actual)
    return Judgement(Verdict.DAMAGED, form, reason, detail, wanted, found, loads=False)


def undecodable(
    form: str, problem: str, minor: int, expected: int | None = None, actual: int | None = None
) -> Judgement:
    """Kubelet cannot decode the file, or the text inside it."""
    detail = f"Kubelet {version_name(minor)} cannot decode this file: {problem}."
    return damaged(form, "wrong-shape", detail, expected, actual)


def corrupted(form: str, what: str, minor: int, expected: int, actual: int) -> Judgement:
    """Kubelet refuses the file, because a part of it does not match the checksum."""
    detail = f"Kubelet {version_name(minor)} refuses this file as corrupted: {what} does not match its checksum."
    return damaged(form, "checksum-mismatch", detail, expected, actual)


def unknown(form: str, detail: str, actual: int | None = None, loads: bool | None = None) -> Judgement:
    """The form is recognised, but its checksum cannot be verified."""
    found = "" if actual is None else str(actual)
    return Judgement(Verdict.UNKNOWN, form, "unverified-form", detail, "", found, loads=loads)


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
        """Always unknown; adds it where kubelet 1.`minor` is known to refuse the form."""
        detail = f"The content can be read, but the checksum of form {self._form} is not verified here"
        if self._refused_since is None or minor < self._refused_since:
            return unknown(self._form, f"{detail}.", self._stored)
        detail = f"{detail}; kubelet {version_name(minor)} does not read this form."
        return unknown(self._form, detail, self._stored, loads=False)


_SHOWN = 5  # names in one sentence


def member_warnings(minor: int, *decodes: Decoded) -> tuple[str, ...]:
    """Warnings about the members that kubelet ignored or read more than once."""
    unknown = [path for decoded in decodes for path in decoded.unknown]
    repeated = [path for decoded in decodes for path in decoded.repeated]
    sentences = []
    if unknown:
        sentences.append(
            f"Kubelet {version_name(minor)} ignores members that it does not know, "
            f"and drops them at its next write: {_list(unknown)}."
        )
    if repeated:
        sentences.append(f"Members that appear more than once, of which the last one counts: {_list(repeated)}.")
    return tuple(sentences)


def _list(paths: list[JsonPath]) -> str:
    more = len(paths) - _SHOWN
    return ", ".join(map(spelled, paths[:_SHOWN])) + (f" and {more} more" if more > 0 else "")
