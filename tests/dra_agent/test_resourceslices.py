"""The slices at an API server that refuses, rewrites and drops what the real one does."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import kubernetes_validate
import pytest

from draState.plugin import ApiServer, Device, Inventory
from draState.plugin.rehearsal import LocalApiServer

from .publishing import PublishingNode, change, generations, remove

DRIVER = "gpu.example.com"
VERSIONS_OF_KUBERNETES = ["1.34", "1.35", "1.36", "1.37"]
# The connections of threads that have ended are closed by the garbage collector.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")


def inventory(*devices: Device | str, pool: str = "n1") -> Inventory:
    offered = [device if isinstance(device, Device) else Device(device) for device in devices]
    return Inventory(DRIVER, pool, tuple(offered))


def many(count: int, **more: Any) -> Inventory:
    return inventory(*(Device(f"gpu-{n}", **more) for n in range(count)))


def with_memory(amount: object) -> Inventory:
    return inventory(Device("gpu-0", capacity={"memory": {"value": amount}}), "gpu-1")


def test_devices_are_published_changed_and_withdrawn(cluster: LocalApiServer) -> None:
    node = PublishingNode(cluster)
    assert node.publish(many(300)) == 3
    assert node.publish(many(300)) == 0, "nothing to change"
    assert sum(len(item["spec"]["devices"]) for item in cluster.slices()) == 300
    assert {item["spec"]["pool"]["resourceSliceCount"] for item in cluster.slices()} == {3}

    node.publish(many(5, shared=True))
    (left,) = cluster.slices()
    assert left["spec"]["pool"] == {"name": "n1", "generation": 2, "resourceSliceCount": 1}
    assert left["spec"]["devices"][0] == {"name": "gpu-0", "allowMultipleAllocations": True}


def test_slices_of_other_nodes_are_left_alone(cluster: LocalApiServer) -> None:
    PublishingNode(cluster, "other").publish(inventory("gpu-0"))
    PublishingNode(cluster).publish(inventory("gpu-0"))
    assert {item["spec"]["nodeName"] for item in cluster.slices()} == {"other", "n1"}


@pytest.mark.parametrize("amount", ["1024Mi", "0.5", "1000m", "1e3", "16Gi", 4, "0"])
@pytest.mark.parametrize("restarted", [False, True])
def test_quantities_in_another_form_are_no_change(cluster: LocalApiServer, amount: object, restarted: bool) -> None:
    node = PublishingNode(cluster)
    assert node.publish(with_memory(amount)) == 1
    for _ in range(3):
        node = PublishingNode(cluster) if restarted else node
        assert node.publish(with_memory(amount)) == 0
    assert generations(cluster) == [1]
    assert cluster.writes == 1


def test_a_changed_quantity_is_a_change_whatever_its_form(cluster: LocalApiServer) -> None:
    node = PublishingNode(cluster)
    node.publish(with_memory("1024Mi"))
    assert node.publish(with_memory("1025Mi")) == 1
    assert node.publish(with_memory("1025Mi")) == 0
    assert node.publish(with_memory("1Gi")) == 1
    assert generations(cluster) == [3]


@pytest.mark.parametrize("restarted", [False, True])
def test_fields_that_the_server_drops_are_no_change_until_it_keeps_them(
    cluster: LocalApiServer, restarted: bool
) -> None:
    cluster.disabled = {"allowMultipleAllocations"}
    node = PublishingNode(cluster)
    node.publish(many(2, shared=True))
    node = PublishingNode(cluster) if restarted else node
    assert node.publish(many(2, shared=True)) == 0
    assert generations(cluster) == [1]

    cluster.disabled = set()  # the cluster was updated
    assert PublishingNode(cluster).publish(many(2, shared=True)) == 1
    assert cluster.slices()[0]["spec"]["devices"][0]["allowMultipleAllocations"]


def test_a_pool_without_devices_is_no_change_either(cluster: LocalApiServer) -> None:
    node = PublishingNode(cluster)
    assert [node.publish(inventory()) for _ in range(3)] == [1, 0, 0]
    assert "devices" not in cluster.slices()[0]["spec"]


def test_a_change_by_another_client_is_corrected(cluster: LocalApiServer) -> None:
    node = PublishingNode(cluster)
    node.publish(with_memory("1024Mi"))
    (item,) = cluster.slices()
    change(cluster, item, devices=[{"name": "gpu-7"}])
    assert node.publish(with_memory("1024Mi")) == 1
    assert [device["name"] for device in cluster.slices()[0]["spec"]["devices"]] == ["gpu-0", "gpu-1"]
    assert generations(cluster) == [2]


def test_slices_of_which_some_are_gone_are_written_again_with_a_new_generation(cluster: LocalApiServer) -> None:
    node = PublishingNode(cluster)
    node.publish(many(300))
    remove(cluster, cluster.slices()[1])
    assert node.publish(many(300)) == 3
    assert generations(cluster) == [2, 2, 2]


def test_a_renamed_pool_is_a_new_slice_and_at_no_time_are_there_two(cluster: LocalApiServer) -> None:
    node = PublishingNode(cluster)
    node.publish(many(300))
    old = {item["metadata"]["name"] for item in cluster.slices()}
    seen: list[int] = []
    write = cluster.put
    cluster.put = lambda path, item: seen.append(len(pools(cluster))) or write(path, item)  # type: ignore[method-assign, func-returns-value]
    node.publish(Inventory(DRIVER, "other/pool", many(300).devices))
    assert pools(cluster) == {"other/pool"}
    assert not old & {item["metadata"]["name"] for item in cluster.slices()}
    assert generations(cluster) == [1, 1, 1]
    assert seen == [0, 1, 1], "the old pool was gone before the first new slice was written"


def pools(cluster: LocalApiServer) -> set[str]:
    return {item["spec"]["pool"]["name"] for item in cluster.slices()}


def test_slices_that_an_older_agent_named_differently_are_replaced(
    cluster: LocalApiServer, api_server: ApiServer
) -> None:
    node = PublishingNode(cluster)
    node.publish(inventory("gpu-0"))
    (item,) = cluster.slices()
    remove(cluster, item)
    pool = {**item["spec"]["pool"], "generation": 7}
    older = {**item, "metadata": {"name": "as-it-was-called"}, "spec": {**item["spec"], "pool": pool}}
    api_server.request("POST", "/resourceslices", older)
    node.publish(inventory("gpu-0"))
    assert generations(cluster) == [8]


def test_they_go_with_their_node_and_come_back_with_it(cluster: LocalApiServer) -> None:
    node = PublishingNode(cluster)
    node.publish(inventory("gpu-0"))
    (owner,) = cluster.slices()[0]["metadata"]["ownerReferences"]
    described = {"apiVersion": "v1", "kind": "Node", "name": "n1", "controller": True}
    assert owner == {**described, "uid": cluster.node_uid("n1")}

    cluster.delete_node("n1")
    assert cluster.slices() == []
    assert "GET /nodes/n1: 404" in node.attempt(inventory("gpu-0"))
    assert cluster.slices() == [], "none without an owner"

    cluster.add_node("n1")
    node.publish(inventory("gpu-0"))
    assert cluster.slices()[0]["metadata"]["ownerReferences"][0]["uid"] == cluster.node_uid("n1") != owner["uid"]


def test_a_slice_without_its_owner_gets_one(cluster: LocalApiServer) -> None:
    node = PublishingNode(cluster)
    node.publish(inventory("gpu-0"))
    (item,) = cluster.slices()
    cluster.put(f"/resourceslices/{item['metadata']['name']}", {**item, "metadata": {"name": item["metadata"]["name"]}})
    assert node.publish(inventory("gpu-0")) == 1
    assert cluster.slices()[0]["metadata"]["ownerReferences"][0]["kind"] == "Node"


@pytest.mark.parametrize("status", [401, 403, 404, 500, 503])
def test_an_outage_is_not_taken_for_a_missing_api(
    cluster: LocalApiServer, status: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster.failing = status
    monkeypatch.setattr(ApiServer, "served_versions", lambda _: ["v1"])
    node = PublishingNode(cluster)
    assert str(status) in node.attempt(inventory("gpu-0"))
    assert node.publisher.unserved == ""


def test_names_are_dns_subdomains_wherever_the_name_of_the_node_is_cut(cluster: LocalApiServer) -> None:
    nodes = [f"{'n' * length}.{'m' * 20}" for length in range(90, 110)] + ["n" * 253, "a-" * 120 + "b", "a"]
    for node in nodes:
        PublishingNode(cluster, node).publish(inventory("gpu-0"))  # which the server would refuse
    assert len(cluster.slices()) == len(nodes)


@pytest.mark.parametrize(
    "more",
    [{"attributes": {"links": {"strings": ["a", "b"]}}}, {"taints": ({"key": "a", "effect": "None"},)}],
)
def test_attributes_that_are_lists_and_taints_make_smaller_slices(cluster: LocalApiServer, more: Any) -> None:
    PublishingNode(cluster).publish(many(130, **more))
    assert [len(item["spec"]["devices"]) for item in cluster.slices()] == [64, 64, 2]


def tainted(*keys: str) -> Inventory:
    taints = tuple({"key": key, "value": "v", "effect": "NoSchedule"} for key in keys)
    return inventory(Device("gpu-0", taints=taints), "gpu-1")


def times(cluster: LocalApiServer) -> dict[str, str]:
    (item,) = cluster.slices()
    return {taint["key"]: taint["timeAdded"] for taint in item["spec"]["devices"][0].get("taints", [])}


@pytest.mark.parametrize("restarted", [False, True])
def test_a_taint_keeps_the_time_when_it_was_added(cluster: LocalApiServer, restarted: bool) -> None:
    """The server sets it in each write without one; pods are evicted a given time after it."""
    node = PublishingNode(cluster)
    node.publish(tainted("a"))
    first = times(cluster)
    node = PublishingNode(cluster) if restarted else node
    assert node.publish(tainted("a")) == 0
    assert node.publish(tainted("a", "b")) == 1
    assert times(cluster)["a"] == first["a"] < times(cluster)["b"]
    assert node.publish(tainted("a", "b")) == 0
    assert node.publish(tainted()) == 1
    assert times(cluster) == {}
    assert generations(cluster) == [3]


def test_taints_of_a_server_without_them_are_no_change(cluster: LocalApiServer) -> None:
    cluster.disabled = {"taints"}
    assert [PublishingNode(cluster).publish(tainted("a")) for _ in range(3)] == [1, 0, 0]


def partitioned(partitions: int, cards: int = 1, memory: str = "40960Mi") -> Inventory:
    devices = many(partitions, consumes_counters={"card-0": {"memory": "10240Mi"}}).devices
    return replace(inventory(*devices), shared_counters={f"card-{n}": {"memory": memory} for n in range(cards)})


def test_counters_are_in_slices_of_their_own(cluster: LocalApiServer) -> None:
    node = PublishingNode(cluster)
    assert node.publish(partitioned(65, cards=9)) == 4
    assert node.publish(partitioned(65, cards=9)) == 0, "although the server writes 40Gi"
    specs = [item["spec"] for item in cluster.slices()]
    assert [len(spec.get("devices", [])) for spec in specs] == [64, 1, 0, 0]
    assert [len(spec.get("sharedCounters", [])) for spec in specs] == [0, 0, 8, 1]
    assert specs[0]["devices"][0]["consumesCounters"] == [
        {"counterSet": "card-0", "counters": {"memory": {"value": "10Gi"}}}
    ]
    node.publish(many(1))
    assert len(cluster.slices()) == 1


PUBLISHED: dict[str, Inventory] = {
    "partitions of a card": partitioned(2),
    "no devices": inventory(),
    "many": many(130),
    "everything": inventory(
        Device(
            "gpu-0",
            shared=True,
            taints=({"key": "a.b/c", "value": "d", "effect": "NoExecute"}, {"key": "e", "effect": "NoSchedule"}),
            attributes={
                "model": {"string": "a"},
                "cores": {"int": 4},
                "ecc": {"bool": True},
                "example.com/firmware": {"version": "1.2.3-rc.1"},
            },
            capacity={
                "memory": {"value": "16Gi"},
                "slots": {"value": 4, "requestPolicy": {"default": "1", "validRange": {"min": "1", "step": "1"}}},
            },
        )
    ),
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_they_fit_the_published_schema_of_kubernetes(cluster: LocalApiServer, name: str) -> None:
    PublishingNode(cluster).publish(PUBLISHED[name])
    for item in cluster.slices():
        for version in VERSIONS_OF_KUBERNETES:
            assert kubernetes_validate.validate(item, version, strict=True) == version


def test_the_published_schema_is_really_used(cluster: LocalApiServer) -> None:
    PublishingNode(cluster).publish(inventory("gpu-0"))
    (item,) = cluster.slices()
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate({**item, "spec": {**item["spec"], "node": "n1"}}, "1.37", strict=True)
