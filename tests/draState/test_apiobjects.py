"""Pods and claims as the API server gives them, read by kubelet's rules."""

from __future__ import annotations

from typing import Any

import pytest

from draState import (
    Allocation,
    ClaimInvalid,
    ContainerClaim,
    Device,
    ResourceClaim,
    claim_names,
    read_pod,
    read_resource_claim,
)

from .apiobjects import (
    GPU,
    NIC,
    claim_object,
    for_group,
    for_pod,
    generated,
    named,
    owned_by,
    owned_by_group,
    pod_object,
    result,
    skipping,
    templated,
)
from .node import Node

ALL, PREPARE, UNPREPARE = "*", "NodePrepareResources", "NodeUnprepareResources"
TEMPLATED = pod_object(templated("a"), status=generated(a="c"))


# A claim.


def test_a_claim_has_what_each_driver_gives_it() -> None:
    given = claim_object(
        "c",
        result("gpu/small", "d0", shareID="s1", consumedCapacity={"memory": "1Gi"}),
        result("net", "n0", NIC, adminAccess=True),
        result("other", "d0", shareID="s1", consumedCapacity={"memory": "1Gi"}),
        reserved=[for_pod("1"), for_pod("2"), for_group("g")],
    )
    shared = Device("p", "d0", "s1", ("gpu", "other"), consumed_capacity={"memory": "1Gi"})
    assert read_resource_claim(given) == ResourceClaim(
        "uid-of-c",
        "c",
        "ns",
        {GPU: Allocation((shared,)), NIC: Allocation((Device("p", "n0", None, ("net",), admin_access=True),))},
        frozenset({"1", "2"}),
    )


@pytest.mark.parametrize(
    ("status", "allocations"),
    [
        ({}, None),
        (None, None),
        ({"allocation": None}, None),
        ({"allocation": {}}, {}),
        ({"allocation": {"devices": {}}}, {}),
        ({"allocation": {"devices": {"results": []}}}, {}),
    ],
)
def test_a_claim_without_results_has_no_drivers_and_one_without_allocation_is_not_allocated(
    status: Any, allocations: Any
) -> None:
    claim = read_resource_claim(claim_object("c") | {"status": status})
    assert (claim.allocations, claim.reserved_for) == (allocations, frozenset())


@pytest.mark.parametrize(
    ("results", "skipped"),
    [
        ([skipping("a", ALL), skipping("b", ALL)], (ALL,)),
        ([skipping("a", ALL), skipping("b")], ()),
        ([skipping("a", UNPREPARE)], (UNPREPARE,)),
        ([skipping("a", ALL), skipping("b", UNPREPARE)], (UNPREPARE,)),
        ([skipping("a", UNPREPARE), skipping("b")], ()),
        ([skipping("a", "Unheard")], ("Unheard",)),
        ([skipping("a", ALL, PREPARE), skipping("b", PREPARE)], (PREPARE,)),
        ([skipping("a", UNPREPARE), skipping("b", ALL, PREPARE)], (UNPREPARE,)),
        ([skipping("a", UNPREPARE, PREPARE)], (PREPARE, UNPREPARE)),
        ([skipping("a", UNPREPARE), skipping("b", PREPARE)], ()),
        ([skipping("a")], ()),
    ],
)
def test_a_driver_skips_what_none_of_its_results_needs(results: list[dict[str, Any]], skipped: tuple[str, ...]) -> None:
    elsewhere = [skipping("n", driver=NIC), skipping("m", "Other", driver=NIC)]
    for order in (results, results[::-1]):
        allocations = read_resource_claim(claim_object("c", elsewhere[0], *order, elsewhere[1])).allocations
        assert allocations
        assert {driver: each.skipped_operations for driver, each in allocations.items()} == {GPU: skipped, NIC: ()}


SECRET = "5ecret"
NO_CLAIMS: list[Any] = [
    {},
    {"metadata": None},
    {"metadata": {"name": "c", "namespace": "ns"}},
    {"metadata": {"uid": 7, "name": "c", "namespace": "ns"}},
    claim_object("c") | {"status": [SECRET]},
    claim_object("c") | {"status": {"allocation": SECRET}},
    claim_object("c") | {"status": {"allocation": {"devices": [SECRET]}}},
    claim_object("c") | {"status": {"allocation": {"devices": {"results": SECRET}}}},
    claim_object("c", SECRET),  # type: ignore[arg-type]
    claim_object("c", {"driver": GPU, "pool": "p", "device": SECRET}),
    claim_object("c", result(pool=[SECRET])),
    claim_object("c", result(skipNodeOperations=SECRET)),
    claim_object("c", result(skipNodeOperations=[7, SECRET])),
    claim_object("c", result(consumedCapacity=[SECRET])),
    claim_object("c", reserved=[SECRET]),  # type: ignore[list-item]
    claim_object("c", reserved=[{"resource": "pods", "name": SECRET}]),
]


@pytest.mark.parametrize("given", NO_CLAIMS)
def test_anything_but_a_claim_is_refused_without_showing_its_data(given: Any) -> None:
    with pytest.raises(ClaimInvalid, match="is not a ResourceClaim") as caught:
        read_resource_claim(given)
    assert SECRET not in str(caught.value)


# The names of a pod's claims.


@pytest.mark.parametrize(
    ("pod", "names"),
    [
        (pod_object(), ()),
        (pod_object(named("a", "x")), ("x",)),
        (pod_object(named("a", "x"), status=generated(a="y")), ("x",)),
        (pod_object(templated("a"), status=generated(b="y", a="x")), ("x",)),
        (pod_object(templated("a"), status=generated(a=None)), ()),
        (pod_object(named("a", "x"), templated("b"), named("c", "x"), status=generated(b="y")), ("x", "y")),
        (pod_object(status={"extendedResourceClaimStatus": {"resourceClaimName": "e"}}), ("e",)),
        (pod_object(named("a", "x"), status={"extendedResourceClaimStatus": {"resourceClaimName": "e"}}), ("x", "e")),
        ({**pod_object(named("a", "x")), "status": None}, ("x",)),
    ],
)
def test_the_claims_of_a_pod_have_the_names_of_spec_and_status(pod: dict[str, Any], names: tuple[str, ...]) -> None:
    assert claim_names(pod) == names


@pytest.mark.parametrize(
    ("pod", "error"),
    [
        (pod_object(templated("a"), status=generated(b="y")), "pod ns/pod: its claim 'a' is not created yet"),
        (pod_object(templated("a")), "pod ns/pod: its claim 'a' is not created yet"),
        (pod_object({"name": "a"}), "pod ns/pod: its claim 'a' names neither a claim nor a template"),
        (pod_object({"name": "a", "source": {"resourceClaimName": "x"}}), "neither a claim nor a template"),
    ],
)
def test_a_claim_without_a_name_is_refused(pod: dict[str, Any], error: str) -> None:
    for read in (claim_names, lambda pod: read_pod(pod, {})):
        with pytest.raises(ClaimInvalid, match=error):
            read(pod)


# A pod.


def test_a_pod_has_its_claims_and_the_requests_that_each_container_uses() -> None:
    pod = pod_object(
        named("a", "x"),
        templated("b"),
        templated("none"),
        status=generated(b="y", none=None),
        one={"claims": [{"name": "a"}, {"name": "b", "request": "r"}]},
        two={"claims": [{"name": "a", "request": "q"}, {"name": "a", "request": "r"}], "requests": {"cpu": "1"}},
        three={},
    )
    pod["spec"]["initContainers"] = [{"name": "zero", "resources": {"claims": [{"name": "none"}]}}, {"name": "bare"}]
    x, y = claim_object("x", result()), claim_object("y", result(), owners=owned_by("1"))

    read = read_pod(pod, {"x": x, "y": y})

    assert (read.uid, read.name, read.namespace) == ("1", "pod", "ns")
    assert read.claims == {"a": read_resource_claim(x), "b": read_resource_claim(y), "none": None}
    assert read.needed_claims().keys() == {"uid-of-x", "uid-of-y"}
    assert read.containers == {
        "zero": (ContainerClaim("none"),),
        "bare": (),
        "one": (ContainerClaim("a"), ContainerClaim("b", "r")),
        "two": (ContainerClaim("a", "q"), ContainerClaim("a", "r")),
        "three": (),
    }


GROUPED = pod_object(templated("a"), status=generated(a="c"), group="g")
NAMED = pod_object(named("a", "c"))
STRANGERS: dict[str, tuple[dict[str, Any], Any]] = {
    "another pod": (TEMPLATED, owned_by("2")),
    "nobody": (TEMPLATED, None),
    "no owners": (TEMPLATED, []),
    "no controller": (TEMPLATED, [{"uid": "1"}, {"uid": "1", "controller": False}]),
    "a group that is not the pod's": (TEMPLATED, owned_by_group("g")),
    "another group": (GROUPED, owned_by_group("other")),
    "nobody, in a group": (GROUPED, None),
    "another kind": (GROUPED, owned_by("g", kind="Job", name="g", apiVersion="batch/v1")),
    "another API": (GROUPED, owned_by("g", kind="PodGroup", name="g", apiVersion="scheduling.other.io/v1")),
}
CLAIM = r"claim ns/c \(UID uid-of-c\)"


@pytest.mark.parametrize(
    ("pod", "claim", "error"),
    [
        (NAMED, None, "pod ns/pod: there is no claim c"),
        (NAMED, claim_object("c", {"driver": GPU}), f"{CLAIM}: the API server's answer is not a ResourceClaim"),
        *(
            (pod, claim_object("c", namespace="other", owners=owners), r"claim other/c .* is not in the namespace of")
            for pod in (NAMED, TEMPLATED, GROUPED)
            for owners in (owned_by("1"), owned_by_group("g"))
        ),
        *(
            (pod, claim_object("c", owners=owners), f"{CLAIM} was not created for pod ns/pod")
            for pod, owners in STRANGERS.values()
        ),
    ],
)
def test_a_claim_that_is_missing_no_claim_or_not_the_pod_s_is_refused(
    pod: dict[str, Any], claim: dict[str, Any] | None, error: str
) -> None:
    with pytest.raises(ClaimInvalid, match=error):
        read_pod(pod, {"c": claim, "other": claim_object("other")})  # type: ignore[dict-item]


@pytest.mark.parametrize(
    ("pod", "owners"),
    [
        (TEMPLATED, owned_by("1")),
        (GROUPED, owned_by("1")),
        (GROUPED, owned_by_group("g")),
        (GROUPED, owned_by_group("g", "v25")),
        (NAMED, owned_by("2")),
    ],
)
def test_a_generated_claim_is_owned_by_the_pod_or_its_group_and_a_named_one_by_anybody(
    pod: dict[str, Any], owners: list[dict[str, Any]]
) -> None:
    assert read_pod(pod, {"c": claim_object("c", owners=owners)}).needed_claims().keys() == {"uid-of-c"}


@pytest.mark.parametrize(
    ("group", "reserved", "allowed"),
    [
        ("", None, False),
        ("", [], False),
        ("", [for_pod("1")], True),
        ("", [for_pod("2")], False),
        ("", [for_pod("2"), for_pod("1")], True),
        ("", [for_pod("2"), for_pod("3")], False),
        ("", [for_group("g")], False),
        ("g", [for_group("g")], True),
        ("g", [for_pod("1"), for_group("g")], True),
        ("g", [for_pod("2")], False),
        ("g", [for_group("other")], False),
        ("g", [for_group("other"), for_group("g")], True),
        ("g", [for_group("other"), for_group("another")], False),
        ("g", [for_group("g", apiGroup="other.io")], False),
        ("g", [for_group("g", resource="jobs")], False),
    ],
)
def test_a_pod_may_use_what_is_reserved_for_it_or_its_group(
    node: Node, group: str, reserved: Any, allowed: bool
) -> None:
    pod = read_pod(pod_object(named("a", "c"), group=group), {"c": claim_object("c", result(), reserved=reserved)})
    if allowed:
        node.manager.prepare_resources(pod)
    else:
        with pytest.raises(ClaimInvalid, match="is not reserved for this pod"):
            node.manager.prepare_resources(pod)


# Extended resources.


def extended(*mappings: tuple[str, str, str]) -> dict[str, Any]:
    listed = [{"containerName": c, "resourceName": name, "requestName": request} for c, name, request in mappings]
    return {"extendedResourceClaimStatus": {"resourceClaimName": "e", "requestMappings": listed}}


@pytest.mark.parametrize(
    ("amount", "used"),
    [("1", True), ("2k", True), (3, True), ("0.5", True), ("0", False), ("0Mi", False), ("0e7", False), ("0.0", False)],
)
def test_a_container_uses_the_requests_made_for_its_extended_resources(amount: Any, used: bool) -> None:
    status = extended(("one", "x.com/gpu", "r0"), ("one", "x.com/gpu", "r1"), ("two", "x.com/gpu", "r2"))
    pod = pod_object(
        status=status,
        one={"requests": {"x.com/gpu": amount, "cpu": "1"}},
        two={"requests": {"x.com/other": "1"}},
        three={},
    )
    read = read_pod(pod, {"e": claim_object("e", result("r0"))})

    assert read.claims.keys() == {""}
    assert read.containers["one"] == ((ContainerClaim("", "r0"), ContainerClaim("", "r1")) if used else ())
    assert (read.containers["two"], read.containers["three"]) == ((), ())


def test_extended_resources_are_prepared_and_reach_the_container(node: Node) -> None:
    claim = claim_object("e", result("r0", "d0"), result("r1", "d1"), reserved=[for_pod("1")])
    status = extended(("one", "x.com/gpu", "r1"))
    pod = read_pod(pod_object(status=status, one={"requests": {"x.com/gpu": "1"}}), {"e": claim})
    node.gpu.devices["uid-of-e"] = tuple(Device("p", f"d{n}", None, (f"r{n}",), (f"cdi={n}",)) for n in range(2))

    node.manager.prepare_resources(pod)

    assert node.manager.get_resources(pod, "one").cdi_devices == ("cdi=1",)
    assert node.manager.container_claim_infos(pod, "one")[0].name == ("ns", "e")


NO_PODS: list[Any] = [
    {},
    {"metadata": {"name": SECRET}},
    {"metadata": {"name": "pod", "namespace": "ns"}},
    {"metadata": {"name": "pod", "namespace": "ns", "uid": "1"}, "spec": [SECRET]},
    {**pod_object(), "spec": {"resourceClaims": SECRET}},
    {**pod_object(), "spec": {"resourceClaims": [{"resourceClaimName": SECRET}]}},
    {**pod_object(), "spec": {"containers": [SECRET]}},
    {**pod_object(), "spec": {"containers": [{"resources": {"claims": [{"name": SECRET}]}}]}},
    pod_object(status={"extendedResourceClaimStatus": {"requestMappings": []}}),
    pod_object(templated("a"), status={"resourceClaimStatuses": [SECRET]}),
]


@pytest.mark.parametrize("given", NO_PODS)
def test_anything_but_a_pod_is_refused_without_showing_its_data(given: Any) -> None:
    with pytest.raises(ClaimInvalid, match="is not a Pod") as caught:
        read_pod(given, {})
    assert SECRET not in str(caught.value)
