"""Agents as processes, and their slices: wiped by kubelet, renamed, in another form, without the API they need."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest

from dra_agent.rehearsal import Node
from draState.plugin.rehearsal import Kubelet, LocalApiServer

from .conversation import LIMIT, claim_for, devices_of, prepare, talk, until


def published(cluster: LocalApiServer) -> list[str]:
    return [device["name"] for item in cluster.slices() for device in item["spec"].get("devices", [])]


def looks(cluster: LocalApiServer) -> int:
    """Each check asks for the node once."""
    return cluster.requests["nodes"]


def after_two_looks(cluster: LocalApiServer, node: Node) -> None:
    """Let kubelet register the agent, and wait for the check that follows at once and the one a second later."""
    before = looks(cluster)
    talk(node, lambda kubelet: kubelet.pod_resources())
    until(lambda: looks(cluster) >= before + 2)


def test_slices_that_kubelet_wiped_at_its_start_are_back_within_seconds(
    node: Node, cluster: LocalApiServer, capsys: pytest.CaptureFixture[str]
) -> None:
    node.start()
    until(lambda: published(cluster) == node.devices)

    async def main() -> float:
        async with Kubelet(node.registry, node.driver):
            await asyncio.sleep(2)
            assert cluster.wipe_slices(node.pool) == 1
            started = time.monotonic()
            while published(cluster) != node.devices:
                assert time.monotonic() < started + LIMIT
                await asyncio.sleep(0.02)
            return time.monotonic() - started

    gap = asyncio.run(main())
    with capsys.disabled():
        print(f"\n  wiped 2 s after the registration, the slices were back after {gap:.1f} s")


def test_a_feature_that_is_turned_on_later_is_noticed_when_kubelet_registers_the_agent(
    cluster: LocalApiServer,
) -> None:
    cluster.disabled = {"allowMultipleAllocations"}
    with Node(cluster.address, [{"name": "gpu-0", "shared": True}]) as node:
        node.start()
        until(lambda: published(cluster) == node.devices)
        after_two_looks(cluster, node)
        cluster.disabled = set()
        talk(node, lambda kubelet: kubelet.pod_resources())
        until(lambda: "allowMultipleAllocations" in cluster.slices()[0]["spec"]["devices"][0])


def change(node: Node, **fields: Any) -> None:
    content = {"driver": node.driver, "devices": [{"name": name} for name in node.devices]}
    node.write("devices.json", {**content, **fields})


def test_a_changed_device_file_is_published_and_a_broken_one_changes_nothing(
    node: Node, cluster: LocalApiServer
) -> None:
    agent = node.start()
    until(lambda: published(cluster) == node.devices)
    change(node, devices=[{"name": "gpu-0"}, {"name": "new"}])
    until(lambda: published(cluster) == ["gpu-0", "new"])
    assert cluster.slices()[0]["spec"]["pool"]["generation"] == 2
    change(node, devices=[{"name": "gpu.0"}])
    until(lambda: "devices[0].name" in agent.details()["inventory"])
    assert "not a DNS label" in agent.log
    assert agent.details()["ready"]
    assert devices_of(prepare(node, claim_for(cluster, node, "a", "gpu-0"))) == ["gpu-0"]
    assert published(cluster) == ["gpu-0", "new"]
    change(node, pool="rack-1/node-1")
    until(lambda: [item["spec"]["pool"]["name"] for item in cluster.slices()] == ["rack-1/node-1"])
    until(lambda: agent.details()["resource_slices"] == "published")
    assert published(cluster) == node.devices
    assert agent.details()["inventory"] == "good"


def test_a_standby_publishes_the_present_devices_when_it_takes_over(node: Node, cluster: LocalApiServer) -> None:
    old, standby = node.start(), node.start()
    until(lambda: published(cluster) == node.devices)
    assert standby.details()["phase"] == "standby"
    change(node, devices=[{"name": "new"}])
    until(lambda: published(cluster) == ["new"])
    assert old.terminate() == 0
    standby.wait_until_ready("serving")
    after_two_looks(cluster, node)
    assert published(cluster) == ["new"]
    assert cluster.slices()[0]["spec"]["pool"]["generation"] == 2, "the old ones did not reappear, even briefly"


def test_without_the_api_it_is_not_ready_and_says_why_until_it_is_there(node: Node, cluster: LocalApiServer) -> None:
    cluster.versions = versions = ["v1beta1", "v1beta2"]
    agent = node.start(wait=False)
    until(lambda: "reason" in agent.details())
    status, text = agent.get("/readyz")
    assert status == 503
    assert all(word in text for word in ("resource.k8s.io/v1", "1.34", *versions))
    assert agent.get("/healthz")[0] == 200, "a restart would not help"
    cluster.versions = [*versions, "v1"]
    agent.wait_until_ready("serving")
    until(lambda: published(cluster) == node.devices)
    assert "reason" not in agent.details()
