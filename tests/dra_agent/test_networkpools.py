"""Pools that belong to no node, and agents of several nodes that all publish them."""

from __future__ import annotations

import asyncio
from typing import Any

import kubernetes_validate
import pytest

from dra_agent.rehearsal import Node
from draState.plugin import ApiServer, Device, Inventory, NetworkPool
from draState.plugin.rehearsal import LocalApiServer

from .conversation import claim_for, devices_of, prepare, until
from .publishing import PublishingNode, change, remove

DRIVER = "nic.example.com"
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # as in test_resourceslices


def pool(*names: str, **more: Any) -> NetworkPool:
    return NetworkPool("fabric", tuple(map(Device, names)), **more)


def offer(*pools: NetworkPool, node: str = "n1") -> Inventory:
    return Inventory(DRIVER, node, (), pools)


MANY = pool(*(f"nic-{n}" for n in range(300)))


def network(cluster: LocalApiServer) -> list[dict[str, Any]]:
    return [item for item in cluster.slices() if "nodeName" not in item["spec"]]


def devices(cluster: LocalApiServer) -> list[str]:
    return [device["name"] for item in network(cluster) for device in item["spec"].get("devices", [])]


@pytest.mark.parametrize(
    ("selector", "where"),
    [
        (None, {"allNodes": True}),
        (
            {"example.com/rack": ("7", "8")},
            {
                "nodeSelector": {
                    "nodeSelectorTerms": [
                        {"matchExpressions": [{"key": "example.com/rack", "operator": "In", "values": ["7", "8"]}]}
                    ]
                }
            },
        ),
    ],
)
def test_a_pool_belongs_to_no_node_and_outlives_the_one_that_wrote_it(
    cluster: LocalApiServer, selector: Any, where: dict[str, Any]
) -> None:
    PublishingNode(cluster).publish(offer(pool("nic-0", node_selector=selector)))
    (item,) = network(cluster)
    assert item["spec"] == {
        "driver": DRIVER,
        **where,
        "pool": {"name": "fabric", "generation": 1, "resourceSliceCount": 1},
        "devices": [{"name": "nic-0"}],
    }
    for version in ("1.34", "1.35", "1.36", "1.37"):
        assert kubernetes_validate.validate(item, version, strict=True) == version
    cluster.delete_node("n1")
    cluster.wipe_slices("n1")
    assert devices(cluster) == ["nic-0"], "no node takes it along when it is deleted"


def test_agents_with_the_same_devices_write_them_once(cluster: LocalApiServer) -> None:
    agents = {name: PublishingNode(cluster, name) for name in ("n1", "n2", "n3")}
    for _ in range(2):
        for name, agent in agents.items():
            agent.publish(offer(MANY, node=name))
    assert cluster.writes == 3 + len(agents), "three slices of the pool, and one of each node"


def test_agents_that_start_at_once_agree_in_the_end(cluster: LocalApiServer) -> None:
    """Some find that another agent was faster, and try again."""

    def run(name: str) -> None:
        agent = PublishingNode(cluster, name)
        while (result := agent.attempt(offer(MANY, node=name))) != "published":
            assert "409" in result

    async def all_at_once() -> None:
        await asyncio.gather(*(asyncio.to_thread(run, f"n{number}") for number in range(8)))

    asyncio.run(all_at_once())
    assert len(devices(cluster)) == len(set(devices(cluster))) == 300
    assert len({item["spec"]["pool"]["generation"] for item in network(cluster)}) == 1


def test_agents_with_different_devices_do_not_fight_and_the_last_change_stays(cluster: LocalApiServer) -> None:
    old, new = offer(pool("nic-0")), offer(pool("nic-0", "nic-1"))
    first, second = PublishingNode(cluster), PublishingNode(cluster)
    first.publish(old)
    second.publish(old)
    second.publish(new)  # its devices have changed
    for _ in range(3):
        assert first.publish(old) == second.publish(new) == 0
    assert devices(cluster) == ["nic-0", "nic-1"]
    assert first.publish(new) == 0, "its devices now match the published slices"
    first.publish(old)  # and back
    assert devices(cluster) == ["nic-0"]


def test_what_is_missing_or_incomplete_is_put_right_by_any_agent(cluster: LocalApiServer) -> None:
    agent = PublishingNode(cluster)
    agent.publish(offer(MANY))
    remove(cluster, network(cluster)[1])
    assert agent.publish(offer(MANY)) == 3
    item = network(cluster)[0]
    change(cluster, item, pool={**item["spec"]["pool"], "generation": 7})
    agent.publish(offer(MANY))
    assert {item["spec"]["pool"]["generation"] for item in network(cluster)} == {8}
    assert len(devices(cluster)) == 300


def test_an_agent_withdraws_only_a_pool_of_its_own(cluster: LocalApiServer, api_server: ApiServer) -> None:
    one, other = PublishingNode(cluster), PublishingNode(cluster, "n2")
    one.publish(offer(pool("nic-0")))
    (item,) = network(cluster)
    controllers = {"metadata": {"name": "theirs"}, "spec": {**item["spec"], "devices": [{"name": "theirs"}]}}
    api_server.request("POST", "/resourceslices", controllers)
    other.publish(offer(node="n2"))
    assert sorted(devices(cluster)) == ["nic-0", "theirs"], "a node without network pools does not touch them"
    one.publish(offer())
    assert devices(cluster) == ["theirs"]


def test_a_claim_gets_a_network_device_and_its_health_is_listed(cluster: LocalApiServer, node: Node) -> None:
    agent = node.start()
    offered = {"pool": "fabric", "all_nodes": True, "devices": [{"name": "nic-0", "env": {"NIC": "0"}}]}
    node.write("devices.json", {"driver": node.driver, "devices": [], "network_pools": [offered]})
    until(lambda: devices(cluster) == ["nic-0"])
    claim = claim_for(cluster, node, "u1", "nic-0")
    assert "which this node does not have" in prepare(node, claim).error, "not in the pool of the node"
    cluster.allocate("u1", claim.name, ["nic-0"], driver=node.driver, pool="fabric", pods=["p1"])
    assert devices_of(prepare(node, claim)) == ["nic-0"]
    until(lambda: 'device_name="nic-0",pool_name="fabric"' in agent.get("/metrics")[1])
