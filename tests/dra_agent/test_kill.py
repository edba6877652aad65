"""SIGKILL at random moments under load: what was acknowledged is kept, and no device has two claims.

Meanwhile device nodes come and go, one client watches their health, one never reads its stream, and one scrapes.
"""

from __future__ import annotations

import asyncio
import random
import re
from contextlib import suppress
from pathlib import Path

import grpc.aio
import pytest

from dra_agent.rehearsal import Node
from draState import ClaimPhase
from draState.plugin.rehearsal import AgentProcess, Journal, Kubelet, LocalApiServer, Pods

from ..long import times
from .conversation import LIMIT
from .test_health import unread

KILLS = times(8, 500)
PODS = 12  # at once
DEVICES = 2 * PODS
SERIES = re.compile(r'^dra_agent_device_health\{device_name="(.+)",pool_name=".+"\} ([0-9.]+)$', re.MULTILINE)


@pytest.mark.timeout(120 + 5 * KILLS)
def test_nothing_that_was_acknowledged_is_lost(
    cluster: LocalApiServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    chance = random.Random(7)
    nodes = [tmp_path / f"gpu{n}" for n in range(DEVICES)]
    for each in nodes:
        each.touch()
    scrapes: list[int] = []

    async def main(node: Node) -> Journal:
        journal = Journal()
        agents = [await asyncio.to_thread(node.start)]
        async with Kubelet(node.registry, node.driver, patience=120) as kubelet:
            pods = Pods(cluster, kubelet, journal, driver=node.driver, pool=node.pool, devices=node.devices)
            load, last = asyncio.create_task(pods.run(PODS)), dict[str, int]()
            others = [
                asyncio.create_task(work) for work in (flap(nodes), watch(kubelet, last), scrape(agents, scrapes))
            ]
            for kill in range(KILLS):
                deaf = await unread(kubelet.channel)
                await asyncio.sleep(chance.uniform(0.02, 0.5))
                await asyncio.to_thread(agents[-1].kill)
                kubelet.pause()
                await asyncio.sleep(0.02)  # answers that were being sent
                deaf.cancel()
                assert journal.differences(node.holdings()) == [], f"kill {kill}, on disk"
                agents.append(await asyncio.to_thread(node.start))
                assert journal.differences(node.holdings()) == [], f"kill {kill}, after the start"
                assert prepared(node).items() <= node.cdi_holdings().items() <= node.holdings().items(), f"kill {kill}"
                assert agents[-1].details()["state"] == "good", agents[-1].log
                kubelet.resume()
                for task in (load, *others):
                    assert not task.done(), task.exception()
            pods.ended.set()
            await load
            others[0].cancel()
            async with asyncio.timeout(LIMIT):
                while last != {f"gpu-{n}": 1 if each.exists() else 2 for n, each in enumerate(nodes)}:  # noqa: ASYNC110
                    await asyncio.sleep(0.05)
            for task in others:
                task.cancel()
            assert journal.differences(node.holdings()) == []
            assert not journal.open
            assert pods.errors == []
        return journal

    offered = [{"name": f"gpu-{n}", "device_nodes": [str(each)]} for n, each in enumerate(nodes)]
    with Node(cluster.address, offered) as node:
        journal = asyncio.run(main(node))
        assert node.cdi_holdings() == node.holdings() == journal.prepared
    assert set(scrapes) == {DEVICES}
    with capsys.disabled():
        print(f"\n  {KILLS} kills, {journal.acknowledged} acknowledged calls, nothing lost")


async def flap(nodes: list[Path]) -> None:
    chance = random.Random(17)
    while True:
        node = chance.choice(nodes)
        node.unlink() if node.exists() else node.touch()
        await asyncio.sleep(chance.uniform(0.05, 0.6))


async def watch(kubelet: Kubelet, last: dict[str, int]) -> None:
    """Kubelet opens the stream again whenever it ends, and forgets what it knew."""
    while True:
        last.clear()
        with suppress(grpc.aio.AioRpcError):
            async for report in kubelet.watch_health():
                assert len(report) == DEVICES, "each is complete"
                last.update({name: each.health for (_, name), each in report.items()})
        await asyncio.sleep(0.05)


async def scrape(agents: list[AgentProcess], counted: list[int]) -> None:
    while True:
        _, text = await asyncio.to_thread(agents[-1].get, "/metrics")
        if 'dra_agent_phase{phase="serving"} 1.0' in text:
            counted.append(len(SERIES.findall(text)))
        await asyncio.sleep(0.1)


def test_a_kill_while_it_starts_is_no_different(node: Node, cluster: LocalApiServer) -> None:
    chance = random.Random(3)

    async def main() -> None:
        journal = Journal()
        agent = await asyncio.to_thread(node.start)
        async with Kubelet(node.registry, node.driver) as kubelet:
            pods = Pods(cluster, kubelet, journal, driver=node.driver, pool=node.pool, devices=node.devices)
            for _ in range(5):
                await pods.start()
            await asyncio.to_thread(agent.kill)
            for _ in range(4):
                agent = node.start(wait=False)
                await asyncio.sleep(chance.uniform(0.2, 0.6))
                await asyncio.to_thread(agent.kill)
            agent = await asyncio.to_thread(node.start)
            assert journal.differences(node.holdings()) == []
            assert prepared(node) == node.cdi_holdings() == node.holdings()

    asyncio.run(main())


def prepared(node: Node) -> dict[str, tuple[str, ...]]:
    """The claims that the agent answers as prepared."""
    claims = node.claims()
    phases = {uid: state.driver_states[node.driver].phase for uid, state in claims.items()}
    return {uid: devices for uid, devices in node.holdings().items() if phases[uid] is ClaimPhase.PREPARED}
