"""The rehearsal's kubelet and API server behave as a real cluster was observed to."""

from __future__ import annotations

from typing import Any

import pytest

from draState import Device, PrepareResult
from draState.plugin import ApiError, ApiServer
from draState.plugin.rehearsal import LocalApiServer, NothingInjected, injected

DRIVER = "gpu.example.com"


def resource_slice(name: str = "s", pool: str = "n1", device: str = "gpu-0", **fields: Any) -> dict[str, Any]:
    return {
        "metadata": {"name": name},
        "spec": {
            "driver": DRIVER,
            "nodeName": "n1",
            "pool": {"name": pool, "generation": 1, "resourceSliceCount": 1},
            "devices": [{"name": device, **fields}],
        },
    }


QUANTITIES = {
    "1024Mi": "1Gi",
    "1536Mi": "1536Mi",
    "0.5Gi": "512Mi",
    "0.5Ki": "512",
    "1.5": "1500m",
    "0.5": "500m",
    "1000m": "1",
    "1000": "1k",
    "1024": "1024",
    "0": "0",
    "0Gi": "0",
    "-1000": "-1k",
    "1e3": "1e3",
    "1000e0": "1e3",
    "+5": "5",
}


def test_quantities_are_stored_in_the_servers_form(api_server: ApiServer) -> None:
    for number, amounts in enumerate((QUANTITIES, QUANTITIES.values())):
        capacity = {f"c{n}": {"value": amount} for n, amount in enumerate(amounts)}
        stored = api_server.request("POST", "/resourceslices", resource_slice(f"s{number}", capacity=capacity))
        found = [value["value"] for value in stored["spec"]["devices"][0]["capacity"].values()]
        assert found == list(QUANTITIES.values())


@pytest.mark.parametrize(
    "item",
    [
        resource_slice("Upper"),
        resource_slice("a.-b"),
        resource_slice("n" * 254),
        resource_slice(pool="a b"),
        resource_slice(device="gpu.0"),
        resource_slice(device="x" * 64),
        resource_slice(attributes={"a-b": {"int": 1}}),
        resource_slice(attributes={"a": {}}),
        resource_slice(capacity={"a": {"value": "16GB"}}),
    ],
)
def test_names_that_break_the_rules_are_refused(cluster: LocalApiServer, api_server: ApiServer, item: Any) -> None:
    with pytest.raises(ApiError) as error:
        api_server.request("POST", "/resourceslices", item)
    assert error.value.status == 422
    assert cluster.slices() == []


def test_a_slice_keeps_its_pool_and_a_write_over_a_newer_version_is_refused(
    cluster: LocalApiServer, api_server: ApiServer
) -> None:
    stored = api_server.request("POST", "/resourceslices", resource_slice())
    assert refused(api_server, "POST", "/resourceslices", resource_slice()) == 409
    renamed = resource_slice(pool="other")
    renamed["metadata"] = stored["metadata"]
    assert refused(api_server, "PUT", "/resourceslices/s", renamed) == 422
    assert refused(api_server, "PUT", "/resourceslices/s", resource_slice()) == 409
    assert refused(api_server, "PUT", "/resourceslices/none", resource_slice("none")) == 404
    dry = {**resource_slice(device="gpu-1"), "metadata": stored["metadata"]}
    assert api_server.request("PUT", "/resourceslices/s?dryRun=All", dry)["spec"]["devices"] == [{"name": "gpu-1"}]
    assert cluster.slices() == [stored], "a dry run changes nothing"


def refused(api_server: ApiServer, method: str, path: str, item: Any) -> int:
    with pytest.raises(ApiError) as error:
        api_server.request(method, path, item)
    return error.value.status


def test_a_claim_can_change_under_its_uid_and_lose_its_devices(cluster: LocalApiServer, api_server: ApiServer) -> None:
    more: dict[str, Any] = {"adminAccess": True, "shareID": "s", "consumedCapacity": {"memory": "1Gi"}}
    cluster.allocate("u1", "c1", ["gpu-0"], driver=DRIVER, pool="n1", request="gpu/small", **more)
    cluster.allocate("u2", "c2", ["gpu-7"], driver=DRIVER, pool="n1", namespace="other")
    (result,) = api_server.claim("default", "c1")["status"]["allocation"]["devices"]["results"]
    assert result == {
        "request": "gpu/small",
        "driver": DRIVER,
        "pool": "n1",
        "device": "gpu-0",
        **more,
    }
    cluster.reallocate("c1", ["gpu-1", "gpu-2"])
    claim = api_server.claim("default", "c1")
    assert claim["metadata"]["uid"] == "u1"
    assert [each["device"] for each in claim["status"]["allocation"]["devices"]["results"]] == ["gpu-1", "gpu-2"]
    cluster.deallocate("c1")
    assert "allocation" not in api_server.claim("default", "c1")["status"]
    uids = [item["metadata"]["uid"] for item in api_server.request("GET", "/resourceclaims")["items"]]
    assert uids == ["u1", "u2"]
    here = api_server.request("GET", "/namespaces/other/resourceclaims")["items"]
    assert [item["metadata"]["uid"] for item in here] == ["u2"]


def test_a_container_gets_the_devices_of_its_request_and_of_none() -> None:
    prepared = PrepareResult(
        (
            Device("p", "a", None, ("gpu",), ("id-a",)),
            Device("p", "b", None, ("nic",), ("id-b",)),
            Device("p", "c", None, (), ("id-c",)),
        )
    )
    assert injected(prepared) == ["id-a", "id-b", "id-c"]
    assert injected(prepared, "gpu") == ["id-a", "id-c"]
    with pytest.raises(NothingInjected, match="gpu/small"):
        injected(PrepareResult((Device("p", "a", None, ("gpu/small",), ("id-a",)),)), "gpu")
