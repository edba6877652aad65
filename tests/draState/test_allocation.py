"""What a ResourceClaim object gives a driver, in the form that API clients return."""

from __future__ import annotations

from typing import Any

import pytest

from draState import ClaimGone, ClaimInvalid, ClaimRef, Device, OpaqueConfig, read_allocation

from .apiobjects import GPU, NIC, for_group, for_pod, result

REF = ClaimRef("u", "c", "ns")
PODS = [{"resource": "pods", "name": "pod", "uid": "p1"}]


def resource_claim(*results: dict[str, Any], config: Any = None, reserved: Any = PODS) -> dict[str, Any]:
    devices = {"results": list(results), "config": config}
    return {
        "metadata": {"uid": "u", "name": "c", "namespace": "ns"},
        "status": {"allocation": {"devices": devices}, "reservedFor": reserved},
    }


def opaque(parameters: Any, *requests: str, source: str = "FromClaim", driver: str = GPU) -> dict[str, Any]:
    return {"source": source, "requests": list(requests), "opaque": {"driver": driver, "parameters": parameters}}


def test_the_rest_of_a_device_s_allocation_can_be_looked_up() -> None:
    given = [result("a", "d0", shareID=share, tolerations=[share]) for share in ("s1", "s2")]
    claim = read_allocation(REF, resource_claim(*given), GPU)
    assert [claim.result_of(device) for device in claim.devices] == given


@pytest.mark.parametrize(
    ("reserved", "pods"),
    [([for_pod("1"), {"resource": "jobs", "name": "j", "uid": "2"}], {"1": "pod-1"}), ([for_group("g")], {})],
)
def test_the_pods_are_those_that_it_is_reserved_for(reserved: Any, pods: dict[str, str]) -> None:
    assert read_allocation(REF, resource_claim(result("a", "d0"), reserved=reserved), GPU).pods == pods


def test_only_the_devices_of_the_driver_count() -> None:
    claim = read_allocation(REF, resource_claim(result("a", "d0"), result("b", "n0", NIC)), GPU)
    assert claim.devices == (Device("p", "d0", request_names=("a",)),)
    assert (claim.uid, claim.name, claim.namespace) == ("u", "c", "ns")


@pytest.mark.parametrize("first", [False, True])
def test_a_device_that_is_also_for_use_is_not_for_administration_only(first: bool) -> None:
    given = resource_claim(result("a", "d0", adminAccess=first), result("b", "d0", adminAccess=not first))
    assert read_allocation(REF, given, GPU).devices == (Device("p", "d0", None, ("a", "b")),)


def test_what_the_claim_says_comes_after_what_its_class_says() -> None:
    config = [opaque(1), opaque(2, source="FromClass"), opaque(3, driver=NIC), opaque(4, source="FromClass"), opaque(5)]
    claim = read_allocation(REF, resource_claim(result("a", "d0"), config=config), GPU)
    assert [(found.parameters, found.from_class) for found in claim.configs] == [
        (2, True),
        (4, True),
        (1, False),
        (5, False),
    ]


def test_a_config_concerns_the_requests_and_alternatives_that_it_names() -> None:
    config = [opaque("all"), opaque("gpu", "gpu"), opaque("small", "gpu/small"), opaque("large", "gpu/large")]
    config += [opaque("nic", "nic"), {"source": "FromClaim", "requests": []}]
    given = resource_claim(result("gpu/small", "d0"), result("nic", "d1"), config=config)
    claim = read_allocation(REF, given, GPU)
    by_device = {device.device_name: [c.parameters for c in claim.configs_of(device)] for device in claim.devices}
    assert by_device == {"d0": ["all", "gpu", "small"], "d1": ["all", "nic"]}
    assert OpaqueConfig("small", ("gpu",)) in claim.configs


@pytest.mark.parametrize(
    ("given", "error"),
    [
        ({"metadata": {"uid": "other"}}, "has UID other under this name"),
        ({"metadata": {"uid": "u"}}, "is not allocated"),
        ({"metadata": {"uid": "u"}, "status": None}, "is not allocated"),
        ({"metadata": {"uid": "u"}, "status": {"allocation": {}}}, "is not allocated"),
        ({"metadata": {"uid": "u"}, "status": {"allocation": {"devices": None, "x": 1}}}, "no device of driver"),
        (resource_claim(), "no device of driver"),
        (None, "does not have it"),
        (resource_claim(result("a", "d0", NIC)), "no device of driver"),
    ],
)
def test_where_nothing_is_given_the_claim_is_gone(given: Any, error: str) -> None:
    with pytest.raises(ClaimGone, match=error):
        read_allocation(REF, given, GPU)


@pytest.mark.parametrize(
    "given",
    [{}, resource_claim({"driver": GPU}), resource_claim(result("a", "d0"), config=[7])],
)
def test_anything_but_a_resource_claim_is_refused_and_is_no_orphan(given: Any) -> None:
    with pytest.raises(ClaimInvalid) as caught:
        read_allocation(REF, given, GPU)
    assert not isinstance(caught.value, ClaimGone)


@pytest.mark.parametrize("reserved", [None, []])
def test_a_claim_that_is_reserved_for_nobody_is_refused_but_not_gone(reserved: Any) -> None:
    """A late prepare, after the pod has gone; while kubelet unprepares, the claim is no orphan."""
    with pytest.raises(ClaimInvalid, match="reserved for nobody") as raised:
        read_allocation(REF, resource_claim(result("a", "d0"), reserved=reserved), GPU)
    assert not isinstance(raised.value, ClaimGone)
