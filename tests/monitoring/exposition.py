"""What the code exposes: read from a running agent, from a library's collector and from checkpoint-verify's file."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

from checkpoint_verify import cli
from checkpointmanager.testing import damage
from dra_agent.rehearsal import Node
from draState.plugin.rehearsal import Claim, Kubelet, LocalApiServer

# What Prometheus itself adds for every target.
OF_PROMETHEUS = {"up": {"instance", "job"}}
ENDINGS = {"counter": ("_total",), "histogram": ("_bucket", "_sum", "_count"), "gauge": ("",)}


@dataclass
class Exposition:
    """Names of series, each with the labels seen, and the value seen last."""

    labels: dict[str, set[str]] = field(default_factory=dict)
    values: dict[str, float] = field(default_factory=dict)

    def add(self, text: str) -> None:
        for family in text_string_to_metric_families(text):
            for ending in ENDINGS[family.type]:
                self.labels.setdefault(family.name + ending, set())
            for sample in family.samples:
                self.labels.setdefault(sample.name, set()).update(sample.labels)
                self.values[sample.name] = sample.value


def of_an_agent_and_of_verify(folder: Path) -> Exposition:
    """An agent with a good claim, a damaged one and an orphan; and verify's metrics file about it."""
    seen = Exposition()
    with LocalApiServer() as cluster, Node(cluster.address, devices=3) as node:
        for number in range(3):
            cluster.allocate(f"uid-{number}", f"claim-{number}", [f"gpu-{number}"], driver=node.driver, pool=node.pool)
        claims = [Claim(f"uid-{number}", f"claim-{number}") for number in range(3)]
        agent = node.start()
        asyncio.run(_prepare(node, claims))
        agent.terminate()
        damage.ruin(node.state, "uid-1")
        cluster.forget_claim("claim-2")
        agent = node.start()
        asyncio.run(_prepare(node, claims[:1]))
        while "uid-2" not in agent.details()["orphaned_claims"]:
            time.sleep(0.01)
        seen.add(agent.get("/metrics")[1])
        seen.labels.update(of_verify(node.state, folder / "checkpoints.prom").labels)
    seen.labels.update(OF_PROMETHEUS)
    return seen


def of_verify(state: Path, file: Path) -> Exposition:
    """What checkpoint-verify writes for node_exporter about a directory."""
    cli.main(["--quiet", "--prometheus", str(file), str(state)])
    seen = Exposition()
    seen.add(file.read_text())
    return seen


async def _prepare(node: Node, claims: list[Claim]) -> None:
    async with Kubelet(node.registry, node.driver) as kubelet:
        await kubelet.prepare(*claims)
