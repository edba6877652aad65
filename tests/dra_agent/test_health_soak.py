"""Pods and device nodes come and go, a client never reads, another one scrapes, and the agent is killed."""

from __future__ import annotations

import asyncio
import random
import re
from contextlib import suppress
from pathlib import Path
from typing import Any

import grpc.aio
import pytest

from dra_agent.rehearsal import Node
from draState.plugin.rehearsal import AgentProcess, HealthReport, Journal, Kubelet, LocalApiServer, Pods

from ..long import times
from .conversation import LIMIT

KILLS = times(1, 120)
SECONDS = (1.5, 2.0) if KILLS == 1 else (1.5, 8.0)  # between two kills
DEVICES, PODS = 24, 12
SERIES = re.compile(r'^dra_agent_device_health\{device_name="(.+)",pool_name=".+"\} ([0-9.]+)$', re.MULTILINE)
HEALTHY, UNHEALTHY = 1, 2


class Watcher:
    """Kubelet's side: opens the stream again whenever it ends."""

    def __init__(self, kubelet: Kubelet) -> None:
        self._kubelet = kubelet
        self.last: dict[tuple[str, str], HealthReport] = {}
        self.reports = 0
        self.streams = 0

    async def run(self) -> None:
        while True:
            self.streams += 1
            self.last = {}  # kubelet forgets all reports when a stream ends
            with suppress(grpc.aio.AioRpcError):
                async for report in self._kubelet.watch_health():
                    assert len(report) == DEVICES, "each is complete"
                    self.last = report
                    self.reports += 1
            await asyncio.sleep(0.05)


async def flap(nodes: list[Path], chance: random.Random, counted: list[int]) -> None:
    while True:
        node = chance.choice(nodes)
        node.unlink() if node.exists() else node.touch()
        counted[0] += 1
        await asyncio.sleep(chance.uniform(0.05, 0.6))


async def scrape(agents: list[AgentProcess], counted: list[int]) -> None:
    while True:
        _, text = await asyncio.to_thread(agents[-1].get, "/metrics")
        if text and 'dra_agent_phase{phase="serving"} 1.0' in text:
            assert len(SERIES.findall(text)) == DEVICES
            counted[0] += 1
        await asyncio.sleep(0.25)


async def never_read(kubelet: Kubelet) -> grpc.aio.Call:
    watch: Any = kubelet.channel.unary_stream("/v1.DRAResourceHealth/NodeWatchResources")
    call: grpc.aio.Call = watch(b"")
    return call


@pytest.mark.timeout(120 + 20 * KILLS)
def test_health_flaps_while_the_agent_is_killed_under_load(
    cluster: LocalApiServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    chance = random.Random(17)
    nodes = [tmp_path / f"gpu{n}" for n in range(DEVICES)]
    for each in nodes:
        each.touch()
    flaps, scrapes, largest = [0], [0], 0

    async def main(node: Node) -> tuple[Journal, Watcher]:
        nonlocal largest
        journal = Journal()
        agents = [await asyncio.to_thread(node.start)]
        async with Kubelet(node.registry, node.driver, patience=120) as kubelet:
            pods = Pods(cluster, kubelet, journal, driver=node.driver, pool=node.pool, devices=node.devices)
            load, watcher = asyncio.create_task(pods.run(PODS)), Watcher(kubelet)
            watching = asyncio.create_task(watcher.run())
            others = [asyncio.create_task(flap(nodes, chance, flaps)), asyncio.create_task(scrape(agents, scrapes))]
            for _ in range(KILLS):
                deaf = await never_read(kubelet)
                await asyncio.sleep(chance.uniform(*SECONDS))
                largest = max(largest, memory_of(agents[-1]))
                await asyncio.to_thread(agents[-1].kill)
                kubelet.pause()
                await asyncio.sleep(0.02)  # answers that were being sent
                deaf.cancel()
                assert journal.differences(node.holdings()) == []
                agents.append(await asyncio.to_thread(node.start))
                assert agents[-1].details()["state"] == "good"
                kubelet.resume()
                for task in (load, watching, *others):
                    assert not task.done(), task.exception()
            pods.ended.set()
            await load
            for task in others:
                task.cancel()
            await as_on_disk(watcher, nodes)
            watching.cancel()
            assert journal.differences(node.holdings()) == []
            assert pods.errors == []
        assert await asyncio.to_thread(agents[-1].terminate) == 0
        return journal, watcher

    offered = [{"name": f"gpu-{n}", "device_nodes": [str(each)]} for n, each in enumerate(nodes)]
    with Node(cluster.address, offered) as node:
        journal, watcher = asyncio.run(main(node))
        assert node.cdi_holdings() == node.holdings() == journal.prepared
    assert scrapes[0] > 0
    with capsys.disabled():
        print(
            f"\n  {KILLS} kills, {flaps[0]} flaps, {watcher.reports} reports on {watcher.streams} streams, "
            f"{scrapes[0]} scrapes, {journal.acknowledged} acknowledged calls, nothing lost; "
            f"the agent had at most {largest >> 20} MiB"
        )


async def as_on_disk(watcher: Watcher, nodes: list[Path]) -> None:
    """Wait until kubelet's reports match the device nodes on disk."""
    expected = {f"gpu-{n}": HEALTHY if each.exists() else UNHEALTHY for n, each in enumerate(nodes)}
    async with asyncio.timeout(LIMIT):
        while {name: report.health for (_, name), report in watcher.last.items()} != expected:  # noqa: ASYNC110
            await asyncio.sleep(0.05)


def memory_of(agent: AgentProcess) -> int:
    pages = int(Path(f"/proc/{agent.pid}/statm").read_text().split()[1])
    return pages * 4096
