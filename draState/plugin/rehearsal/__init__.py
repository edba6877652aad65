"""A node without a cluster: replaces kubelet and the API server, for tests, demos and driver authors.

with LocalApiServer() as cluster, Node(cluster.address) as node:
    agent = node.start()
    kubelet = Kubelet(node.registry, node.driver)
    ...
    agent.kill()
"""

from ._apiserver import LocalApiServer
from ._journal import Journal
from ._kubelet import Claim, HealthReport, Kubelet, NothingInjected, injected
from ._node import AgentProcess, Node
from ._pods import Pods

__all__ = [
    "AgentProcess",
    "Claim",
    "HealthReport",
    "Journal",
    "Kubelet",
    "LocalApiServer",
    "Node",
    "NothingInjected",
    "Pods",
    "injected",
]
