"""What a damaged file of kubelet or a driver does to the node, and what is lost if the file is moved away."""

from __future__ import annotations

from typing import NamedTuple

from .kubelet import NVIDIA


class Consequence(NamedTuple):
    """`now` is a sentence without its full stop; `lost` ends the sentence "move the file away; then …"."""

    now: str
    lost: str
    stops_kubelet: bool = True
    of_kubelet: bool = True


_PODS = Consequence(
    "Kubelet panics when it starts, unless in-place resizing of pods is turned off",
    "kubelet forgets resizes in flight and starts from the pod specs",
)

_CONSEQUENCES = {
    "cpu_manager_state": Consequence(
        "The CPU manager refuses this file, and kubelet does not start",
        "kubelet assigns CPUs again; running pods keep theirs only until then",
    ),
    "memory_manager_state": Consequence(
        "The memory manager refuses this file, and kubelet does not start",
        "kubelet assigns NUMA memory again; running pods are not counted until they restart",
    ),
    "dra_manager_state": Consequence(
        "The DRA manager refuses this file, and kubelet does not start",
        "kubelet forgets which claims are prepared, and never unprepares the ones from before",
    ),
    "kubelet_internal_checkpoint": Consequence(
        "The device manager logs this and continues: kubelet starts, but does not know which devices running pods have",
        "kubelet learns the devices again when their plugins register; it may assign those of running pods twice",
        stops_kubelet=False,
    ),
    "allocated_pods_state": _PODS,
    "actuated_pods_state": _PODS,
    "pod_status_manager_state": _PODS,
    "dra_health_state": Consequence(
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


def consequence_of(kind: str) -> Consequence:
    return _CONSEQUENCES[kind]
