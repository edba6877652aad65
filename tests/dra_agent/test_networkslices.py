"""Pools that belong to no node, and agents of several nodes that all publish them."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from http import HTTPStatus
from typing import Any

import kubernetes_validate
import pytest

from draState.plugin import Device, Inventory, NetworkPool
from draState.plugin._apiserver.client import ApiError, ApiServer
from draState.plugin._apiserver.credentials import Credentials
from draState.plugin._slices.objects import network_slices_of
from draState.plugin._slices.resourceslices import ResourceSlices
from draState.plugin.rehearsal import LocalApiServer, Node
from draState.plugin.rehearsal._stored import refusal

from .conversation import claim_for, devices_of, prepare, until

DRIVER = "nic.example.com"


@pytest.fixture
def server(cluster: LocalApiServer) -> Iterator[ApiServer]:
    server = ApiServer(Credentials("127.0.0.1", int(cluster.address.rpartition(":")[2])), 2)
    yield server
    server.close()


def pool(*names: str, **more: Any) -> NetworkPool:
    return NetworkPool("fabric", tuple(map(Device, names)), **more)


def file_with(*pools: NetworkPool, node: str = "n1") -> Inventory:
    return Inventory(DRIVER, node, (), pools)


def network(cluster: LocalApiServer) -> list[dict[str, Any]]:
    return [item for item in cluster.slices() if "nodeName" not in item["spec"]]


def devices(cluster: LocalApiServer) -> list[str]:
    return [device["name"] for item in network(cluster) for device in item["spec"].get("devices", [])]


def test_a_pool_for_all_nodes_has_no_node_and_no_owner(cluster: LocalApiServer, server: ApiServer) -> None:
    ResourceSlices(server, "n1").publish(file_with(pool("nic-0")))
    (item,) = network(cluster)
    assert item["spec"] == {
        "driver": DRIVER,
        "allNodes": True,
        "pool": {"name": "fabric", "generation": 1, "resourceSliceCount": 1},
        "devices": [{"name": "nic-0"}],
    }
    assert not item["metadata"].get("ownerReferences")
    cluster.delete_node("n1")
    cluster.wipe_slices("n1")
    assert devices(cluster) == ["nic-0"], "no node takes it along when it is deleted"


def test_a_pool_for_some_nodes_selects_them_by_label(cluster: LocalApiServer, server: ApiServer) -> None:
    ResourceSlices(server, "n1").publish(file_with(pool("nic-0", node_selector={"rack": ("7", "8"), "a.b/c": ("d",)})))
    (item,) = network(cluster)
    assert "allNodes" not in item["spec"]
    assert item["spec"]["nodeSelector"]["nodeSelectorTerms"] == [
        {
            "matchExpressions": [
                {"key": "rack", "operator": "In", "values": ["7", "8"]},
                {"key": "a.b/c", "operator": "In", "values": ["d"]},
            ]
        }
    ]


def test_agents_with_the_same_file_write_it_once(cluster: LocalApiServer, server: ApiServer) -> None:
    many = pool(*(f"nic-{n}" for n in range(300)))
    agents = {node: ResourceSlices(server, node) for node in ("n1", "n2", "n3")}
    for _ in range(2):
        for node, agent in agents.items():
            agent.publish(file_with(many, node=node))
    assert cluster.writes == 3 + len(agents), "three slices of the pool, and one of each node"
    assert len(network(cluster)) == 3
    more = pool(*(f"nic-{n}" for n in range(301)))
    for node, agent in agents.items():
        agent.publish(file_with(more, node=node))
    assert {item["spec"]["pool"]["generation"] for item in network(cluster)} == {2}
    assert len(devices(cluster)) == 301


def test_agents_that_start_at_once_agree_in_the_end(cluster: LocalApiServer) -> None:
    """Some find that another agent was faster, and try again, as the publisher does."""
    many = pool(*(f"nic-{n}" for n in range(300)))
    barrier = threading.Barrier(8)

    def run(number: int) -> None:
        server = ApiServer(Credentials("127.0.0.1", int(cluster.address.rpartition(":")[2])), 5)
        agent = ResourceSlices(server, f"n{number}")
        barrier.wait()
        for _ in range(50):
            try:
                agent.publish(file_with(many, node=f"n{number}"))
            except ApiError as error:
                if error.status != HTTPStatus.CONFLICT:
                    raise
                continue
            break
        else:
            raise AssertionError("never agreed")
        server.close()

    threads = [threading.Thread(target=run, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(devices(cluster)) == len(set(devices(cluster))) == 300
    assert len({item["spec"]["pool"]["generation"] for item in network(cluster)}) == 1


def test_agents_with_different_files_do_not_fight_and_the_last_change_stays(
    cluster: LocalApiServer, server: ApiServer, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    old, new = file_with(pool("nic-0")), file_with(pool("nic-0", "nic-1"))
    first, second = ResourceSlices(server, "n1"), ResourceSlices(server, "n2")
    first.publish(old)
    second.publish(old)
    second.publish(new)  # its file has changed
    for _ in range(3):
        assert first.publish(old) == second.publish(new) == 0
    assert devices(cluster) == ["nic-0", "nic-1"]
    assert len([line for line in caplog.messages if "fabric: another agent published a different version" in line]) == 1
    assert first.publish(new) == 0, "its file now matches the published slices"
    first.publish(old)  # and back
    assert devices(cluster) == ["nic-0"]


def test_what_is_missing_or_incomplete_is_put_right_by_any_agent(cluster: LocalApiServer, server: ApiServer) -> None:
    many = file_with(pool(*(f"nic-{n}" for n in range(300))))
    agent = ResourceSlices(server, "n1")
    agent.publish(many)
    cluster.delete(f"/resourceslices/{network(cluster)[1]['metadata']['name']}")
    assert agent.publish(many) == 3
    item = network(cluster)[0]
    mixed = {**item, "spec": {**item["spec"], "pool": {**item["spec"]["pool"], "generation": 7}}}
    cluster.put(f"/resourceslices/{item['metadata']['name']}", mixed)
    agent.publish(many)
    assert {item["spec"]["pool"]["generation"] for item in network(cluster)} == {8}
    for item in network(cluster):
        cluster.delete(f"/resourceslices/{item['metadata']['name']}")
    agent.publish(many)
    assert len(devices(cluster)) == 300


def test_an_agent_withdraws_only_a_pool_that_was_in_its_own_file(cluster: LocalApiServer, server: ApiServer) -> None:
    one, other = ResourceSlices(server, "n1"), ResourceSlices(server, "n2")
    one.publish(file_with(pool("nic-0")))
    other.publish(file_with(node="n2"))
    assert devices(cluster) == ["nic-0"], "a node without network pools does not touch them"
    assert one.publish(file_with()) == 1
    assert devices(cluster) == []


def test_slices_of_a_controller_of_the_same_driver_are_left_alone(cluster: LocalApiServer, server: ApiServer) -> None:
    (item,) = network_slices_of(DRIVER, pool("theirs"))
    item["metadata"]["name"] = "theirs"
    server.request("POST", "/resourceslices", item)
    agent = ResourceSlices(server, "n1")
    agent.publish(file_with(pool("nic-0")))
    agent.publish(file_with())
    assert devices(cluster) == ["theirs"]


@pytest.mark.parametrize("version", ["1.34", "1.35", "1.36", "1.37"])
@pytest.mark.parametrize("selector", [None, {"example.com/rack": ("7",)}])
@pytest.mark.parametrize("name", ["fabric", "rack-1/fabric.a", "p" * 253])
def test_they_fit_the_published_schema_and_the_rules_of_names(
    version: str, selector: dict[str, tuple[str, ...]] | None, name: str
) -> None:
    described = NetworkPool(name, (Device("nic-0"),), selector)
    for item in network_slices_of(DRIVER, described):
        assert kubernetes_validate.validate(item, version, strict=True) == version
        assert refusal(item, None) == ""


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
