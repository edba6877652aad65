"""memory_manager_state: v3 (1.37), v2 (1.36 with a gate), v1 (before)."""

from __future__ import annotations

from typing import Any

from draState.kubelet import CHECKSUM, INT, STRING, UINT64, Field, Map, Node, Pointer, Slice, String, Struct

from .policy import TEXT_FORM_SINCE, Forms, PolicyState
from .verdict import version_name


def reader(document: Node) -> PolicyState:
    """The document as a memory manager state, to be judged by any kubelet version."""
    return PolicyState(document, FORMS)


def _refusal(value: Any, minor: int) -> tuple[str, str] | None:
    version = version_name(minor)
    if not value["PolicyName"]:
        return "no-policy", f"Kubelet {version} refuses this file: it names no policy."
    # Older versions are known to accept the file itself; what they do with it after that is not.
    if minor >= TEXT_FORM_SINCE and _has_null_table(value["MachineState"]):
        return (
            "null-table",
            f"Kubelet {version} panics on this file: a memory table of the machine state is null.",
        )
    return None


def _has_null_table(machine: Any) -> bool:
    nodes = [node for node in (machine or {}).values() if node is not None]
    return any(table is None for node in nodes for table in (node["MemoryMap"] or {}).values())


_RESOURCE = String("v1.ResourceName")
_NODES = Slice("[]int", INT)
_TABLE = Struct(
    "state.MemoryTable",
    (
        Field("TotalMemSize", UINT64, "total"),
        Field("SystemReserved", UINT64, "systemReserved"),
        Field("Allocatable", UINT64, "allocatable"),
        Field("Reserved", UINT64, "reserved"),
        Field("Free", UINT64, "free"),
    ),
)
_NODE = Struct(
    "state.NUMANodeState",
    (
        Field("NumberOfAssignments", INT, "numberOfAssignments"),
        Field("MemoryMap", Map("map[v1.ResourceName]*state.MemoryTable", Pointer(_TABLE)), "memoryMap"),
        Field("Cells", _NODES, "cells"),
    ),
)
_BLOCK = Struct(
    "state.Block",
    (
        Field("NUMAAffinity", _NODES, "numaAffinity"),
        Field("Type", _RESOURCE, "type"),
        Field("Size", UINT64, "size"),
    ),
)
_BLOCKS = Slice("[]state.Block", _BLOCK)
_POD = Struct("state.PodEntry", (Field("MemoryBlocks", _BLOCKS, "memoryBlocks"),))

_POLICY = Field("PolicyName", STRING, "policyName")
_MACHINE = Field("MachineState", Map("state.NUMANodeMap", Pointer(_NODE), integer_keys=True), "machineState")
_ENTRIES = Field(
    "Entries", Map("state.ContainerMemoryAssignments", Map("map[string][]state.Block", _BLOCKS)), "entries"
)
_PODS = Field("PodEntries", Map("state.PodMemoryAssignments", _POD), "podEntries")
_CHECKSUM = Field("Checksum", CHECKSUM, "checksum")
_NAME = "state.MemoryManagerCheckpoint"

FORMS = Forms(
    text="v3",
    pods="v2",
    plain="v1",
    pods_struct=Struct(_NAME, (_POLICY, _MACHINE, _ENTRIES, _PODS, _CHECKSUM)),
    plain_struct=Struct(_NAME, (_POLICY, _MACHINE, _ENTRIES, _CHECKSUM)),
    text_struct=Struct("state.MemoryManagerCheckpointData", (_POLICY, _MACHINE, _ENTRIES, _PODS)),
    refusal=_refusal,
    policies=("None", "Static", "BestEffort"),
    zero_accepted_since=TEXT_FORM_SINCE,
    zero_unknown_in=(36,),
)
