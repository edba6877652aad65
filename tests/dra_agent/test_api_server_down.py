"""A slow, failing or absent API server affects only new claims."""

from __future__ import annotations

import asyncio

from dra_agent.rehearsal import Kubelet, LocalApiServer, Node

from .conversation import claim_for, devices_of, prepare, talk, unprepare, until


def test_while_it_fails_only_new_claims_fail(node: Node, cluster: LocalApiServer) -> None:
    old, new = claim_for(cluster, node, "a", "gpu-0"), claim_for(cluster, node, "b", "gpu-1")
    node.start()
    first = prepare(node, old)
    cluster.failing = 503
    assert "503" in prepare(node, new).error
    assert prepare(node, old) == first
    assert unprepare(node, old) == ""
    cluster.failing = 0
    assert devices_of(prepare(node, new)) == ["gpu-1"]


def test_it_starts_without_one_and_publishes_when_it_is_back(node: Node, cluster: LocalApiServer) -> None:
    cluster.failing = 500
    agent = node.start()
    assert unprepare(node, claim_for(cluster, node, "a", "gpu-0")) == ""
    until(lambda: "500" in agent.details()["resource_slices"])
    cluster.failing = 0
    until(lambda: len(cluster.slices()) == 1)


def test_a_slow_one_holds_up_neither_known_claims_nor_unprepares(node: Node, cluster: LocalApiServer) -> None:
    old, gone = claim_for(cluster, node, "old", "gpu-0"), claim_for(cluster, node, "gone", "gpu-2")
    others = [claim_for(cluster, node, f"new-{n}", "gpu-1") for n in range(40)]
    node.start("--api-timeout", "4")
    first = prepare(node, old)
    assert prepare(node, gone).devices
    cluster.delay = 30

    async def main(kubelet: Kubelet) -> None:
        waiting = [asyncio.create_task(kubelet.prepare(claim)) for claim in others]
        await asyncio.sleep(0.2)
        assert (await kubelet.unprepare(gone))["gone"] == ""
        assert not any(call.done() for call in waiting), "an unprepare needs no API server"
        assert (await kubelet.prepare(old))["old"] == first, "from memory, when the API server gives no answer"
        answers = await asyncio.gather(waiting[0], waiting[1])
        assert all("no answer within 4 s" in next(iter(answer.values())).error for answer in answers)
        for call in waiting:
            call.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)

    talk(node, main)
    assert node.holdings() == {"old": ("gpu-0",)}
