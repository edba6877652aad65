"""cpu_manager_state: v4 (1.37), v3 (1.36 with a gate), v2 (before), and v1, which is read but not verified."""

from __future__ import annotations

import re
from typing import Any

from draState.kubelet import (
    CHECKSUM,
    EMPTY_STRUCT,
    STRING,
    Custom,
    Field,
    Map,
    Node,
    Object,
    Struct,
    UnmarshalError,
    decode,
)

from .policy import TEXT_FORM_SINCE, Forms, PolicyState
from .verdict import UnverifiedState, version_name

MAX_CPUS = 1 << 20  # CPUs in one set; kubelet has no limit, but memory has

_NUMBER = re.compile(r"[+-]?[0-9]{1,19}", re.ASCII)


def reader(document: Node) -> PolicyState | UnverifiedState:
    """The document as a CPU manager state, to be judged by any kubelet version."""
    if _is_flat(document):
        return UnverifiedState(document, "v1", refused_since=TEXT_FORM_SINCE)
    return PolicyState(document, FORMS)


def _is_flat(document: Node) -> bool:
    """True if the entries map container IDs to CPUs, as only form v1 did."""
    entries = document.get("ENTRIES") if isinstance(document, Object) else None
    if not isinstance(entries, Object) or not entries.members:
        return False
    return all(isinstance(value, str) for _, value in entries.members)


def _pod_entry(node: Node) -> Any:
    """A pod's entry; kubelet parses its CPU list while decoding."""
    entry = decode(_POD_ENTRY_TEXT, node, _POD_ENTRY_TEXT.zero())
    if entry.problems:
        raise UnmarshalError(entry.problems[0])
    try:
        cpus = cpus_in(entry.value["CPUSet"])
    except ValueError as error:
        raise UnmarshalError(str(error)) from error
    return {"CPUSet": {"elems": {cpu: {} for cpu in cpus}}}


def _refusal(value: Any, minor: int) -> tuple[str, str] | None:
    version = version_name(minor)
    if not value["PolicyName"]:
        return "no-policy", f"Kubelet {version} refuses this file: it names no policy."
    lists = [value["DefaultCPUSet"]]
    lists += [cpus for pod in (value["Entries"] or {}).values() for cpus in (pod or {}).values()]
    for cpus in lists:
        try:
            cpu_ranges(cpus)
        except ValueError as error:
            return "bad-cpu-set", f"Kubelet {version} cannot parse a CPU set: {error}."
    return None


_POD_ENTRY_TEXT = Struct("state.podEntryJSON", (Field("CPUSet", STRING, "cpuSet"),))
_CPU_SET = Struct("cpuset.CPUSet", (Field("elems", Map("map[int]struct {}", EMPTY_STRUCT, integer_keys=True)),))
_POD_ENTRY = Custom(Struct("state.PodEntry", (Field("CPUSet", _CPU_SET),)), _pod_entry)

_POLICY = Field("PolicyName", STRING, "policyName")
_DEFAULT = Field("DefaultCPUSet", STRING, "defaultCpuSet")
_ENTRIES = Field("Entries", Map("map[string]map[string]string", Map("map[string]string", STRING)), "entries")
_PODS = Field("PodEntries", Map("state.PodCPUAssignments", _POD_ENTRY), "podEntries")
# The CPUs a container had when it was admitted: KEP-5554 renamed them from originals to baselines.
_BASELINE = Struct("state.ContainerCPUs", (Field("Baseline", STRING, "baseline"),))
_BASELINES = Field("Baselines", Map("state.Baselines", Map("map[string]state.ContainerCPUs", _BASELINE)), "baselines")
_ORIGINAL = Struct("state.ContainerCPUs", (Field("Original", STRING, "original"),))
_ORIGINALS = Field("Originals", Map("state.Originals", Map("map[string]state.ContainerCPUs", _ORIGINAL)), "originals")
_CHECKSUM = Field("Checksum", CHECKSUM, "checksum")
_NAME = "state.CPUManagerCheckpoint"

FORMS = Forms(
    text="v4",
    pods="v3",
    plain="v2",
    pods_struct=Struct(_NAME, (_POLICY, _DEFAULT, _ENTRIES, _PODS, _CHECKSUM)),
    plain_struct=Struct(_NAME, (_POLICY, _DEFAULT, _ENTRIES, _CHECKSUM)),
    text_struct=Struct("state.CPUManagerCheckpointData", (_POLICY, _DEFAULT, _ENTRIES, _PODS, _BASELINES, _ORIGINALS)),
    refusal=_refusal,
    policies=("none", "static"),
    pods_aliases=(_NAME + "V3",),
    plain_aliases=(_NAME + "V2",),
)


def cpu_ranges(text: str) -> list[range]:
    """The ranges of the list. Raises ValueError if kubelet would refuse it."""
    if text == "":
        return []
    return [_range(part) for part in text.split(",")]


def cpus_in(text: str) -> list[int]:
    """The CPUs of the list, sorted, each once. Also raises ValueError for sets of absurd size."""
    ranges = cpu_ranges(text)
    if sum(part.stop - part.start for part in ranges) > MAX_CPUS:
        raise ValueError(f"CPU set of more than {MAX_CPUS} CPUs")
    return sorted({cpu for part in ranges for cpu in part})


def _range(part: str) -> range:
    first, dash, last = part.partition("-")
    low = _number(first, part)
    high = _number(last, part) if dash else low
    if low > high:
        raise ValueError(f"CPU range {part!r} runs backwards")
    return range(low, high + 1)


def _number(text: str, part: str) -> int:
    if not _NUMBER.fullmatch(text) or not -(2**63) <= int(text) < 2**63:
        raise ValueError(f"{part!r} is not a CPU or a range of CPUs")
    return int(text)
