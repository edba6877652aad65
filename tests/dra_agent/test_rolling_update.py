"""Old and new process overlap: the new one stands by and reports ready, then the old one stops."""

from __future__ import annotations

import asyncio
import time

import pytest

from dra_agent.rehearsal import Journal, Kubelet, LocalApiServer, Node, Pods

from .conversation import claim_for, prepare


def test_with_surge_no_call_is_lost(cluster: LocalApiServer, capsys: pytest.CaptureFixture[str]) -> None:
    async def main(node: Node) -> float:
        journal = Journal()
        old = await asyncio.to_thread(node.start)
        async with Kubelet(node.registry, node.driver) as kubelet:
            pods = Pods(cluster, kubelet, journal, driver=node.driver, pool=node.pool, devices=node.devices)
            load = asyncio.create_task(pods.run(8))
            await asyncio.sleep(0.3)

            new = await asyncio.to_thread(node.start)  # returns when it is ready
            details = await asyncio.to_thread(new.details)
            assert details["phase"] == "standby"
            assert "'agent-1'" in details["holder"], "names the owner of the state"
            assert old.running
            await asyncio.sleep(0.2)
            started = time.monotonic()
            assert await asyncio.to_thread(old.terminate) == 0
            await asyncio.to_thread(new.wait_until_ready, "serving")
            gap = time.monotonic() - started
            assert (await kubelet.register()).name == node.driver, "kubelet finds the new socket"

            before = journal.acknowledged
            await asyncio.sleep(0.3)
            assert journal.acknowledged > before, "the new one works"
            pods.ended.set()
            await load
            assert journal.differences(node.holdings()) == []
            assert pods.errors == []
            assert node.cdi_holdings() == node.holdings()
            return gap

    with Node(cluster.address, 16) as node:
        gap = asyncio.run(main(node))
    with capsys.disabled():
        print(f"\n  from SIGTERM of the old agent to the new one serving: {gap * 1000:.0f} ms")


def test_a_standby_takes_over_from_one_that_was_killed(node: Node, cluster: LocalApiServer) -> None:
    claim = claim_for(cluster, node, "a", "gpu-0")
    old = node.start()
    first = prepare(node, claim)
    new = node.start()
    assert new.details()["phase"] == "standby"
    old.kill()
    new.wait_until_ready("serving")
    assert prepare(node, claim) == first


def test_a_standby_can_be_stopped_and_touches_nothing(node: Node, cluster: LocalApiServer) -> None:
    old = node.start()
    standby = node.start()
    assert standby.terminate() == 0
    assert "standing by" in standby.log
    assert prepare(node, claim_for(cluster, node, "a", "gpu-0")).devices
    assert old.get("/healthz")[0] == 200
