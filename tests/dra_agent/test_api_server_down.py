"""A slow, refusing or absent API server: which claims it affects, and how the agent shows it."""

from __future__ import annotations

import asyncio

from dra_agent.rehearsal import Node
from draState.plugin.rehearsal import Kubelet, LocalApiServer

from .conversation import claim_for, devices_of, prepare, talk, unprepare, until


def test_while_it_cannot_be_reached_only_new_claims_fail(node: Node, cluster: LocalApiServer) -> None:
    old, new = claim_for(cluster, node, "a", "gpu-0"), claim_for(cluster, node, "b", "gpu-1")
    agent = node.start()
    first = prepare(node, old)
    cluster.go_down()
    assert "cannot be reached" in prepare(node, new).error
    assert prepare(node, old) == first
    assert agent.get("/readyz")[0] == 200, "an outage is not the agent's"
    assert unprepare(node, old) == ""
    cluster.listen()
    assert devices_of(prepare(node, new)) == ["gpu-1"]


def test_a_refusal_fails_the_prepare_and_readiness_says_why(node: Node, cluster: LocalApiServer) -> None:
    """The right to read claims was taken away, and the claim allocated again while kubelet was down."""
    claim = claim_for(cluster, node, "a", "gpu-0")
    agent = node.start()
    assert devices_of(prepare(node, claim)) == ["gpu-0"]
    for status, device in ((403, "gpu-1"), (404, "gpu-2"), (503, "gpu-3")):
        cluster.reallocate(claim.name, [device])
        cluster.failing = status

        answer = prepare(node, claim)

        assert (answer.devices, str(status) in answer.error) == ((), True), answer
        code, text = agent.get("/readyz")
        assert (code, str(status) in text) == (503, True), text
        cluster.failing = 0
        until(lambda: agent.get("/readyz")[0] == 200)
        assert devices_of(prepare(node, claim)) == [device]


def test_what_was_answered_from_memory_is_looked_up_when_the_server_is_back(
    node: Node, cluster: LocalApiServer
) -> None:
    same, other = claim_for(cluster, node, "a", "gpu-0"), claim_for(cluster, node, "b", "gpu-1")
    agent = node.start()
    for claim in (same, other):
        prepare(node, claim)
    cluster.reallocate(other.name, ["gpu-2"])
    cluster.go_down()
    assert devices_of(prepare(node, same)) == ["gpu-0"]
    assert devices_of(prepare(node, other)) == ["gpu-1"], "wrong, and nobody can know yet"
    assert agent.get("/readyz")[0] == 200

    cluster.listen()

    until(lambda: agent.get("/readyz")[0] == 503)
    assert list(agent.details()["outdated_claims"]) == ["b"]
    assert 'dra_resource_claims_outdated{claim_uid="b"} 1.0' in agent.get("/metrics")[1]
    assert "claim b: outdated" in agent.log
    assert devices_of(prepare(node, other)) == ["gpu-2"]
    assert agent.get("/readyz")[0] == 200


def test_it_starts_without_one_and_publishes_when_it_is_back(node: Node, cluster: LocalApiServer) -> None:
    cluster.failing = 500
    agent = node.start()
    assert unprepare(node, claim_for(cluster, node, "a", "gpu-0")) == ""
    until(lambda: "500" in agent.details()["resource_slices"])
    assert agent.get("/readyz")[0] == 200, "an outage is not the agent's"
    cluster.failing = 0
    until(lambda: len(cluster.slices()) == 1)


def test_a_slow_one_holds_up_no_unprepare_and_nothing_is_answered_from_memory(
    node: Node, cluster: LocalApiServer
) -> None:
    old, gone = claim_for(cluster, node, "old", "gpu-0"), claim_for(cluster, node, "gone", "gpu-2")
    others = [claim_for(cluster, node, f"new-{n}", "gpu-1") for n in range(40)]
    agent = node.start("--api-timeout", "4")
    first = prepare(node, old)
    assert prepare(node, gone).devices
    cluster.delay = 30

    async def main(kubelet: Kubelet) -> None:
        waiting = [asyncio.create_task(kubelet.prepare(claim)) for claim in others]
        await asyncio.sleep(0.2)
        assert (await kubelet.unprepare(gone))["gone"] == ""
        assert not any(call.done() for call in waiting), "an unprepare needs no API server"
        answers = await asyncio.gather(kubelet.prepare(old), waiting[0], waiting[1])
        assert all("no answer within 4 s" in next(iter(answer.values())).error for answer in answers)
        for call in waiting:
            call.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)

    talk(node, main)
    assert agent.get("/readyz")[0] == 200, "slow, but it has refused nothing"
    assert node.holdings() == {"old": ("gpu-0",)}
    cluster.delay = 0
    assert prepare(node, old) == first
