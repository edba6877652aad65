"""What containers and monitoring agents see, by kubelet's rules 7 (skipped operations) and 8 (requests)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from draState import (
    Allocation,
    ClaimInvalid,
    ClaimNotPrepared,
    ClaimResource,
    ContainerClaim,
    Device,
    DynamicResource,
    NodeOperation,
    Pod,
)

from .claims import GPU, NIC, claim_of, pod_of
from .node import Node, assert_memory_equals_disk

CLAIM = claim_of("a", GPU, NIC)
LARGE = Device("pool", "large", request_names=("gpu/large",), cdi_device_ids=("x=large", "x=both"))
SMALL = Device("pool", "small", "share-1", request_names=("gpu/small", "spare"), cdi_device_ids=("x=small", "x=both"))
OTHER = Device("pool", "other", request_names=("gpu-2",), cdi_device_ids=("x=other",))
COMMON = Device("pool", "common", cdi_device_ids=("y=common",))


@pytest.fixture
def pod(node: Node) -> Pod:
    """A pod whose claim has devices for requests gpu, gpu-2 and spare, and one for all; it is prepared."""
    node.gpu.devices["a"] = (LARGE, SMALL, OTHER)
    node.nic.devices["a"] = (COMMON,)
    uses = {
        "whole": (ContainerClaim("a"),),
        "one": (ContainerClaim("a", "gpu-2"),),
        "alternatives": (ContainerClaim("a", "gpu"),),
        "two": (ContainerClaim("a", "spare"), ContainerClaim("a", "gpu-2")),
        "nothing": (),
        "absent": (ContainerClaim("a", "no-such-request"),),
    }
    pod = pod_of("pod-1", CLAIM, containers=uses)
    node.manager.prepare_resources(pod)
    return pod


def test_a_claim_that_is_not_needed_is_neither_prepared_nor_missed(node: Node) -> None:
    """As in the pod's status: a name without a claim."""
    uses = {"main": (ContainerClaim("none"), ContainerClaim("a"))}
    pod = pod_of("pod-1", CLAIM, containers=uses)
    pod = replace(pod, claims={**pod.claims, "none": None})

    node.manager.prepare_resources(pod)

    assert node.manager.get_resources(pod, "main").by_request.keys() == {("a", "")}
    assert [claim.uid for claim in node.manager.container_claim_infos(pod, "main")] == ["a"]
    assert [use.claim_name for use in node.manager.pod_resources(pod).containers["main"]] == ["claim-a"]
    node.manager.reconcile([pod], complete=True)
    assert node.manager.pod_might_need_to_unprepare("pod-1")


def test_a_claim_that_the_pod_does_not_have_is_named(node: Node) -> None:
    pod = pod_of("pod-1", containers={"main": (ContainerClaim("typo"),)})

    for read in (node.manager.get_resources, node.manager.container_claim_infos):
        with pytest.raises(ClaimInvalid, match=r"container main of pod default/pod-pod-1 uses claim 'typo'"):
            read(pod, "main")
    with pytest.raises(ClaimInvalid, match="'typo'"):
        node.manager.pod_resources(pod)


@pytest.mark.parametrize(
    ("container", "devices"),
    [
        ("whole", ("x=large", "x=both", "x=small", "x=other", "y=common")),
        ("one", ("x=other", "y=common")),
        ("alternatives", ("x=large", "x=both", "x=small", "y=common")),
        ("two", ("x=small", "x=both", "y=common", "x=other")),
        ("nothing", ()),
        ("absent", ("y=common",)),
        ("no-such-container", ()),
    ],
)
def test_rule_8_a_container_gets_the_devices_of_its_requests_in_order_and_once(
    node: Node, pod: Pod, container: str, devices: tuple[str, ...]
) -> None:
    assert node.manager.get_resources(pod, container).cdi_devices == devices


def test_rule_8_devices_are_listed_by_request(node: Node, pod: Pod) -> None:
    assert node.manager.get_resources(pod, "two").by_request == {
        ("a", "spare"): ("x=small", "x=both", "y=common"),
        ("a", "gpu-2"): ("x=other", "y=common"),
    }


def test_a_container_gets_nothing_of_a_claim_that_is_not_ready(node: Node, pod: Pod) -> None:
    stranger = pod_of("pod-2", CLAIM)
    with pytest.raises(ClaimNotPrepared, match=r"default/claim-a.*pod-2.*call prepare_resources first"):
        node.manager.get_resources(stranger, "main")

    node.restart()
    with pytest.raises(ClaimNotPrepared):
        node.manager.get_resources(pod, "whole")
    node.manager.unprepare_resources(pod)
    with pytest.raises(ClaimNotPrepared):
        node.manager.get_resources(pod, "whole")


def test_the_pod_resources_view_shows_which_pod_uses_which_device(node: Node, pod: Pod) -> None:
    view = node.manager.pod_resources(pod)

    small = ClaimResource(GPU, "pool", "small", ("x=small", "x=both"), "share-1")
    other = ClaimResource(GPU, "pool", "other", ("x=other",))
    common = ClaimResource(NIC, "pool", "common", ("y=common",))
    assert node.manager.container_claim_infos(pod, "two") == (node.claim("a"),), "each once"
    assert (view.name, view.namespace, view.containers.keys()) == ("pod-pod-1", "default", pod.containers.keys())
    assert view.containers["two"] == (
        DynamicResource("claim-a", "default", (small, common)),
        DynamicResource("claim-a", "default", (other, common)),
    )
    assert view.containers["nothing"] == ()
    node.manager.unprepare_resources(pod)
    assert node.manager.pod_resources(pod).containers["two"] == ()
    assert node.manager.container_claim_infos(pod, "two") == ()


# Rule 7

GIVEN = Device("pool", "given", cdi_device_ids=("z=given",))


@pytest.mark.parametrize(
    ("skipped", "prepares", "unprepares"),
    [
        ([NodeOperation.PREPARE], 0, 1),
        ([NodeOperation.UNPREPARE], 1, 0),
        ([NodeOperation.ALL], 0, 0),
        ([NodeOperation.PREPARE, NodeOperation.UNPREPARE], 0, 0),
        (["NodeRepaintResources"], 1, 1),
        ([], 1, 1),
    ],
)
def test_rule_7_skipped_operations_skip_the_calls_but_not_the_counting(
    node: Node, skipped: list[str], prepares: int, unprepares: int
) -> None:
    claim = claim_of("a", GPU, skipped=skipped, devices=[GIVEN])
    pods = [pod_of("pod-1", claim), pod_of("pod-2", claim)]

    for pod in pods:
        node.manager.prepare_resources(pod)
    assert node.on_disk()["a"].pod_uids == {"pod-1", "pod-2"}
    assert len(node.gpu.calls_of("prepare")) == prepares
    expected = ("z=given",) if not prepares else node.gpu.device_of("a").cdi_device_ids
    assert node.manager.get_resources(pods[0], "main").cdi_devices == expected
    assert_memory_equals_disk(node)

    node.restart()
    node.manager.unprepare_resources("pod-1")
    assert node.on_disk()["a"].pod_uids == {"pod-2"}
    node.manager.unprepare_resources("pod-2")
    assert len(node.gpu.calls_of("unprepare")) == unprepares
    assert node.files() == []


def test_rule_7_skipping_goes_by_driver(node: Node) -> None:
    claim = replace(claim_of("a"), allocations={GPU: Allocation(), NIC: Allocation((), (NodeOperation.ALL,))})

    node.manager.prepare_resources(pod_of("pod-1", claim))
    node.manager.unprepare_resources("pod-1")

    assert node.gpu.calls == [("prepare", ("a",)), ("unprepare", ("a",))]
    assert node.nic.calls == []


@pytest.mark.parametrize("skipped", [[NodeOperation.ALL], [NodeOperation.PREPARE, NodeOperation.UNPREPARE]])
def test_rule_7_a_driver_that_is_never_called_need_not_be_registered(node: Node, skipped: list[str]) -> None:
    pod = pod_of("pod-1", claim_of("a", "net.example.com", skipped=skipped, devices=[GIVEN]))

    node.manager.prepare_resources(pod)
    assert node.manager.get_resources(pod, "main").cdi_devices == ("z=given",)
    node.manager.unprepare_resources(pod)

    assert node.files() == []


def test_rule_7_a_driver_that_is_called_only_to_unprepare_must_be_registered(node: Node) -> None:
    pod = pod_of("pod-1", claim_of("a", "net.example.com", skipped=[NodeOperation.PREPARE]))

    with pytest.raises(ClaimInvalid, match="not registered"):
        node.manager.prepare_resources(pod)
