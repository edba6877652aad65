"""SIGKILL at random moments under load: what was acknowledged is kept, and no device has two claims."""

from __future__ import annotations

import asyncio
import random

import pytest

from draState import ClaimPhase
from draState.plugin.rehearsal import Journal, Kubelet, LocalApiServer, Node, Pods

from ..long import times

KILLS = times(8, 500)
PODS = 12  # at once


@pytest.mark.timeout(60 + 5 * KILLS)
def test_nothing_that_was_acknowledged_is_lost(cluster: LocalApiServer, capsys: pytest.CaptureFixture[str]) -> None:
    chance = random.Random(7)

    async def main(node: Node) -> Journal:
        journal = Journal()
        agent = await asyncio.to_thread(node.start)
        async with Kubelet(node.registry, node.driver, patience=120) as kubelet:
            pods = Pods(cluster, kubelet, journal, driver=node.driver, pool=node.pool, devices=node.devices)
            load = asyncio.create_task(pods.run(PODS))
            for kill in range(KILLS):
                await asyncio.sleep(chance.uniform(0.02, 0.5))
                await asyncio.to_thread(agent.kill)
                kubelet.pause()
                await asyncio.sleep(0.02)  # answers that were being sent
                assert journal.differences(node.holdings()) == [], f"kill {kill}, on disk"
                agent = await asyncio.to_thread(node.start)
                assert journal.differences(node.holdings()) == [], f"kill {kill}, after the start"
                assert prepared(node).items() <= node.cdi_holdings().items() <= node.holdings().items(), f"kill {kill}"
                assert agent.details()["state"] == "good", agent.log
                kubelet.resume()
            pods.ended.set()
            await load
            assert journal.differences(node.holdings()) == []
            assert not journal.open
            assert pods.errors == []
        return journal

    with Node(cluster.address, 2 * PODS) as node:
        journal = asyncio.run(main(node))
        assert node.cdi_holdings() == node.holdings() == journal.prepared
    with capsys.disabled():
        print(f"\n  {KILLS} kills, {journal.acknowledged} acknowledged calls, nothing lost")


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
