"""DRAManager.prepare_resources, by the rules of kubelet: 1 validate and checkpoint, 2 call and record, 3 and 4."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from checkpointmanager import CheckpointWriteFailed
from draState import ClaimConflict, ClaimInvalid, Device, DriverState, PrepareFailed, PrepareResult, ResourceClaim

from .claims import GPU, NIC, claim_of, pod_of
from .node import Node, assert_memory_equals_disk
from .stores import no_space


def is_prepared(node: Node, uid: str) -> bool:
    claim = node.cache.get(uid)
    return claim is not None and claim.prepared


def states(node: Node, uid: str) -> dict[str, DriverState]:
    claim = node.claim(uid)
    return claim.state.driver_states


NOT_ALLOCATED = replace(claim_of("bad"), allocations=None)
UNKNOWN_DRIVER = claim_of("bad", "tpu.example.com")
NOT_RESERVED = claim_of("bad")


@pytest.mark.parametrize("order", [1, -1])
@pytest.mark.parametrize(
    ("bad", "why"),
    [
        (NOT_ALLOCATED, "not allocated"),
        (UNKNOWN_DRIVER, "driver tpu.example.com.*not registered"),
        (NOT_RESERVED, r"not reserved for this pod \(UID pod-1\)"),
    ],
)
def test_rule_1_a_claim_that_is_not_valid_changes_nothing(node: Node, bad: ResourceClaim, why: str, order: int) -> None:
    pod = pod_of("pod-1", *[claim_of("good"), bad][::order])
    if bad is NOT_RESERVED:
        pod = replace(pod, claims={**pod.claims, "bad": bad})

    with pytest.raises(ClaimInvalid, match=f"default/claim-bad.*UID bad.*{why}"):
        node.manager.prepare_resources(pod)

    assert len(node.cache) == 0
    assert node.files() == []
    assert node.gpu.calls == node.store.calls == []


def test_rule_1_claims_and_references_are_durable_before_any_driver_is_called(node: Node) -> None:
    seen = {}

    def look(operation: str) -> None:
        seen.update({uid: (set(claim.pod_uids), set(claim.driver_states)) for uid, claim in node.on_disk().items()})
        assert operation == "prepare"

    node.gpu.before = look

    node.manager.prepare_resources(pod_of("pod-1", claim_of("a"), claim_of("b", GPU, NIC)))

    assert seen == {"a": ({"pod-1"}, {GPU}), "b": ({"pod-1"}, {GPU, NIC})}


def test_rule_1_no_driver_is_called_when_the_disk_refuses(node: Node) -> None:
    node.store.fail("store", no_space("a"))

    with pytest.raises(CheckpointWriteFailed):
        node.manager.prepare_resources(pod_of("pod-1", claim_of("a")))

    assert node.gpu.calls == []
    assert len(node.cache) == 0


def test_rule_2_one_call_per_driver_with_all_claims_of_the_pod_and_its_devices_are_durable(node: Node) -> None:
    node.manager.prepare_resources(pod_of("pod-1", claim_of("a"), claim_of("b", GPU, NIC), claim_of("c", NIC)))

    assert node.gpu.calls == [("prepare", ("a", "b"))]
    assert node.nic.calls == [("prepare", ("b", "c"))]
    assert (node.gpu.refs["b"].name, node.gpu.refs["b"].namespace) == ("claim-b", "default")
    assert states(node, "b") == {
        GPU: DriverState((node.gpu.device_of("b"),)),
        NIC: DriverState((node.nic.device_of("b"),)),
    }
    assert is_prepared(node, "b")
    assert node.cache.holders(GPU, "pool", "dev-b") == {"b"}
    assert node.store.calls == [("store", ("a", "b", "c"))] * 2
    assert_memory_equals_disk(node)


def test_rule_2_what_succeeded_is_recorded_and_the_error_names_what_failed(node: Node) -> None:
    node.nic.errors["b"] = "no such port"
    node.gpu.errors["c"], node.nic.errors["c"] = "too hot", "too cold"

    with pytest.raises(PrepareFailed, match=f"prepare failed for 2 claims: .*claim b: {NIC}: no such port") as failed:
        node.manager.prepare_resources(pod_of("pod-1", claim_of("a"), claim_of("b", GPU, NIC), claim_of("c", GPU, NIC)))

    assert failed.value.failures == {"b": f"{NIC}: no such port", "c": f"{GPU}: too hot; {NIC}: too cold"}
    assert (is_prepared(node, "a"), is_prepared(node, "b")) == (True, False)
    assert states(node, "b") == {GPU: DriverState((node.gpu.device_of("b"),)), NIC: DriverState()}
    assert_memory_equals_disk(node)


def test_rule_2_a_retry_replaces_what_was_recorded_and_calls_only_for_what_is_not_prepared(node: Node) -> None:
    pod = pod_of("pod-1", claim_of("a"), claim_of("b", GPU, NIC))
    node.nic.errors["b"] = "no such port"
    with pytest.raises(PrepareFailed):
        node.manager.prepare_resources(pod)
    node.nic.errors.clear()
    node.gpu.devices["b"] = (Device("pool", "other"), Device("pool", "third"))
    node.gpu.forget_calls()

    node.manager.prepare_resources(pod)

    assert node.gpu.calls == [("prepare", ("b",))]
    assert states(node, "b")[GPU].devices == (Device("pool", "other"), Device("pool", "third"))
    assert node.cache.holders(GPU, "pool", "dev-b") == frozenset()
    assert is_prepared(node, "b")
    assert_memory_equals_disk(node)


def be_silent(node: Node) -> None:
    node.nic.silent = {"b"}


def raise_an_error(node: Node) -> None:
    node.nic.raises["prepare"] = ConnectionError("socket is gone")


def be_no_mapping(node: Node) -> None:
    node.nic.prepare = lambda claims: 7  # type: ignore[method-assign,assignment,return-value]


def go_between_check_and_call(node: Node) -> None:
    node.gpu.before = lambda _: node.drivers.pop(NIC, None)


@pytest.mark.parametrize(
    ("fail", "why"),
    [
        (be_silent, "the driver gave no answer"),
        (raise_an_error, "ConnectionError: socket is gone"),
        (be_no_mapping, "TypeError: 'int' object is not iterable"),
        (go_between_check_and_call, "the driver is not registered on this node"),
    ],
)
def test_rule_2_a_driver_that_fails_as_a_whole_fails_its_claims(
    node: Node, fail: Callable[[Node], None], why: str
) -> None:
    fail(node)

    with pytest.raises(PrepareFailed) as failed:
        node.manager.prepare_resources(pod_of("pod-1", claim_of("a"), claim_of("b", GPU, NIC)))

    assert failed.value.failures == {"b": f"{NIC}: {why}"}
    assert (is_prepared(node, "a"), is_prepared(node, "b")) == (True, False)
    assert states(node, "b")[GPU].devices == (node.gpu.device_of("b"),)


def test_rule_2_a_result_that_cannot_be_written_is_a_failure_of_that_claim_alone(node: Node) -> None:
    pod = pod_of("pod-1", claim_of("a", skipped=["*"]), claim_of("b"))
    node.gpu.before = lambda _: node.store.fail("store", no_space("b"))

    with pytest.raises(PrepareFailed) as failed:
        node.manager.prepare_resources(pod)

    assert failed.value.failures.keys() == {"b"}
    assert (is_prepared(node, "a"), is_prepared(node, "b")) == (True, False)
    assert node.gpu.prepared == {"b"}
    node.store.work_again()
    node.manager.unprepare_resources(pod)
    assert node.gpu.prepared == set()


def test_rule_3_a_prepared_claim_is_not_prepared_again_in_this_process(node: Node) -> None:
    claim = claim_of("a")
    node.manager.prepare_resources(pod_of("pod-1", claim))

    node.manager.prepare_resources(pod_of("pod-1", claim))
    node.manager.prepare_resources(pod_of("pod-2", claim))

    assert node.gpu.calls == [("prepare", ("a",))]
    assert node.on_disk()["a"].pod_uids == {"pod-1", "pod-2"}

    node.restart()
    assert not is_prepared(node, "a")
    for _ in range(2):
        node.manager.prepare_resources(pod_of("pod-1", claim))
    assert node.gpu.calls == [("prepare", ("a",))] * 2, "once more after a restart"


def test_rule_4_the_same_name_with_another_uid_is_an_error_that_names_both(node: Node) -> None:
    node.manager.prepare_resources(pod_of("pod-1", claim_of("old", name="same")))

    with pytest.raises(ClaimConflict, match=r"default/same.*UID new.*UID old"):
        node.manager.prepare_resources(pod_of("pod-2", claim_of("other"), claim_of("new", name="same")))

    assert node.on_disk().keys() == {"old"}
    assert node.gpu.calls == [("prepare", ("old",))]
    node.manager.unprepare_resources("pod-1")
    node.manager.prepare_resources(pod_of("pod-2", claim_of("new", name="same")))
    assert is_prepared(node, "new")


def test_a_claim_that_a_pod_calls_by_two_names_is_prepared_once(node: Node) -> None:
    pod = pod_of("pod-1", claim_of("a"))
    pod = replace(pod, claims={"one": pod.claims["a"], "two": pod.claims["a"]})

    node.manager.prepare_resources(pod)

    assert node.gpu.calls == [("prepare", ("a",))]


def test_after_a_reboot_every_claim_is_prepared_once_more_and_is_then_of_this_boot(node: Node) -> None:
    pods = [pod_of("pod-1", claim_of("a"), claim_of("b", NIC)), pod_of("pod-2", claim_of("c"))]
    for pod in pods:
        node.manager.prepare_resources(pod)

    node.reboot("boot-b")
    node.gpu.forget_calls()
    assert node.cache.report().earlier_boot == ("a", "b", "c")
    node.manager.prepare_resources(pods[0])

    assert node.gpu.calls == [("prepare", ("a",))]
    assert node.cache.report().earlier_boot == ("c",)
    node.restart()
    assert node.cache.report().earlier_boot == ("c",), "the files say the same"
    assert (node.gpu.prepared, node.nic.prepared) == ({"a"}, {"b"})


# A driver is foreign code

NONSENSE: list[Any] = [None, {}, [], "prepared", 7]
UNTYPED: Any = PrepareResult
HALF: list[Any] = [UNTYPED((None,)), UNTYPED(({"pool": "p"},)), UNTYPED(None), UNTYPED(error=None)]


@pytest.mark.parametrize("answer", [*NONSENSE, *HALF], ids=repr)
def test_an_invalid_answer_fails_its_claim_and_no_other(node: Node, answer: Any) -> None:
    pod = pod_of("pod-1", claim_of("a"), claim_of("b"))
    prepare = node.gpu.prepare
    node.gpu.prepare = lambda claims: {**prepare(claims), "a": answer}  # type: ignore[method-assign]

    with pytest.raises(
        PrepareFailed, match=r"gpu.example.com: the driver answered \w+ where \w+ is expected"
    ) as failed:
        node.manager.prepare_resources(pod)

    assert failed.value.failures.keys() == {"a"}
    assert {claim.uid: claim.prepared for claim in node.cache} == {"a": False, "b": True}
