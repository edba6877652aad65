"""A node without a cluster: replaces kubelet and the API server, for your driver's tests and for ours.

    python -m draState.plugin.rehearsal nic:Nic

plays all acts for a driver: kills, reboots, outages, damage, and more. `Stage` is the node that an act happens on, for
acts of your own; the rest is what it is made of.
"""

from ._acts import ACTS, Given, Result, rehearse
from ._apiserver import LocalApiServer
from ._kubelet import Claim, HealthReport, Kubelet, NothingInjected, injected
from ._node import AgentProcess, Node, NotReady
from ._pods import Journal, Pods
from ._stage import Failed, Pod, Stage

__all__ = [
    "ACTS",
    "AgentProcess",
    "Claim",
    "Failed",
    "Given",
    "HealthReport",
    "Journal",
    "Kubelet",
    "LocalApiServer",
    "Node",
    "NotReady",
    "NothingInjected",
    "Pod",
    "Pods",
    "Result",
    "Stage",
    "injected",
    "rehearse",
]
