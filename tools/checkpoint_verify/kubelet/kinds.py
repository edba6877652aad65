"""The kinds of state files of kubelet and of NVIDIA's driver: their names, and what damage of each does to the node."""

from __future__ import annotations

import os
from typing import NamedTuple

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
NVIDIA_NAME = "checkpoint.json"
_NVIDIA_FOLDER = ".nvidia.com"  # gpu.nvidia.com, compute-domain.nvidia.com


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
