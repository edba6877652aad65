"""DRAManager.unprepare_resources and reconcile, by kubelet's rules 5 and 6; and the claims that outlive their API."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import pytest

from draState import ClaimInvalid, ClaimNotPrepared, ReconcileRefused, UnprepareFailed

from .claims import GPU, NIC, claim_of, pod_of
from .drivers import LIMIT, Doorstop
from .node import Node, assert_indexes_agree, assert_memory_equals_disk
from .stores import no_space


def test_rule_5_a_pod_without_a_reference_changes_nothing(node: Node) -> None:
    node.manager.prepare_resources(pod_of("pod-1", claim_of("a")))
    before, calls = node.cache.get("a"), list(node.store.calls)

    node.manager.unprepare_resources("pod-2")
    node.manager.unprepare_resources(pod_of("pod-3", claim_of("a")))
    node.manager.unprepare_claim("nobody")

    assert node.cache.get("a") is before
    assert node.store.calls == calls
    assert node.gpu.calls == [("prepare", ("a",))]


def test_rule_5_while_other_pods_use_the_claim_only_the_reference_goes(node: Node) -> None:
    claim = claim_of("a")
    node.manager.prepare_resources(pod_of("pod-1", claim))
    node.manager.prepare_resources(pod_of("pod-2", claim))

    node.manager.unprepare_resources("pod-1")

    kept = node.claim("a")
    assert (kept.prepared, kept.unpreparing, set(kept.state.pod_uids)) == (True, False, {"pod-2"})
    assert node.gpu.calls_of("unprepare") == []
    assert_memory_equals_disk(node)


def test_rule_5_for_the_last_pod_drivers_are_called_and_entry_and_file_go(node: Node) -> None:
    pod = pod_of("pod-1", claim_of("a", GPU, NIC), claim_of("b"))
    node.manager.prepare_resources(pod)
    seen = []
    node.gpu.before = lambda _: seen.append(set(node.on_disk()))

    node.manager.unprepare_resources(pod)

    assert seen == [{"a", "b"}], "the files go after the drivers have released the claim"
    assert node.gpu.calls_of("unprepare") == [("a", "b")]
    assert node.nic.calls_of("unprepare") == [("a",)]
    assert len(node.cache) == 0
    assert node.files() == []
    assert_indexes_agree(node.cache)


def test_rule_5_a_claim_that_is_being_unprepared_says_so_and_refuses_new_pods(node: Node) -> None:
    claim = claim_of("a")
    first = pod_of("pod-1", claim)
    node.manager.prepare_resources(first)
    driver = Doorstop()
    node.gpu.before = driver

    with ThreadPoolExecutor() as pool:
        working = pool.submit(node.manager.unprepare_resources, first)
        driver.wait_until_reached()
        seen = node.cache.get("a")
        with pytest.raises(ClaimNotPrepared):
            node.manager.get_resources(first, "main")
        node.gpu.errors["a"] = "busy"
        waiting = pool.submit(node.manager.prepare_resources, pod_of("pod-2", claim))
        driver.let_go()
        with pytest.raises(UnprepareFailed, match="busy"):
            working.result(LIMIT)
        with pytest.raises(ClaimInvalid, match="being unprepared; try again"):
            waiting.result(LIMIT)

    assert seen
    assert (seen.unpreparing, seen.prepared, set(seen.state.pod_uids)) == (True, False, {"pod-1"})
    assert node.on_disk()["a"].pod_uids == {"pod-1"}


FAILURES = {
    "busy": lambda node: node.nic.errors.update(a="busy"),
    "the driver gave no answer": lambda node: node.nic.silent.add("a"),
    "ConnectionError: gone": lambda node: node.nic.raises.update(unprepare=ConnectionError("gone")),
    "the driver is not registered on this node": lambda node: node.drivers.pop(NIC),
}


@pytest.mark.parametrize("why", FAILURES)
def test_rule_5_a_failure_leaves_the_claim_for_the_next_try(node: Node, why: str) -> None:
    pod = pod_of("pod-1", claim_of("a", GPU, NIC), claim_of("b"))
    node.manager.prepare_resources(pod)
    FAILURES[why](node)

    with pytest.raises(UnprepareFailed) as failed:
        node.manager.unprepare_resources(pod)

    assert failed.value.failures == {"a": f"{NIC}: {why}"}
    (left,) = node.cache
    assert (left.uid, left.unpreparing, left.prepared) == ("a", True, False)
    assert node.manager.pod_might_need_to_unprepare("pod-1")
    assert node.on_disk().keys() == {"a"}

    node.nic.errors.clear()
    node.nic.silent.clear()
    node.nic.raises.clear()
    node.drivers[NIC] = node.nic
    node.manager.unprepare_resources(pod)
    assert len(node.cache) == 0
    assert node.nic.prepared == set()


def test_rule_5_a_reference_that_cannot_be_dropped_stays_and_costs_no_other_claim(node: Node) -> None:
    shared, own = claim_of("shared"), claim_of("own")
    node.manager.prepare_resources(pod_of("pod-1", shared, own))
    node.manager.prepare_resources(pod_of("pod-2", shared))
    node.store.fail("store", no_space("shared"))

    with pytest.raises(UnprepareFailed) as failed:
        node.manager.unprepare_resources("pod-1")

    assert failed.value.failures.keys() == {"shared"}
    assert [claim.uid for claim in node.cache.of_pod("pod-1")] == ["shared"]
    assert "own" not in node.cache
    assert_memory_equals_disk(node)


def test_a_force_deleted_claim_is_unprepared_from_the_cache_alone(node: Node) -> None:
    assert not node.manager.pod_might_need_to_unprepare("pod-1")
    node.manager.prepare_resources(pod_of("pod-1", claim_of("a", GPU, NIC)))
    node.restart()
    assert node.manager.pod_might_need_to_unprepare("pod-1")

    node.manager.unprepare_resources("pod-1")
    assert not node.manager.pod_might_need_to_unprepare("pod-1")

    assert node.gpu.prepared == node.nic.prepared == set()
    assert (node.gpu.refs["a"].uid, node.gpu.refs["a"].name) == ("a", "claim-a")
    assert node.files() == []


def test_unprepare_by_claim_works_whatever_refers_to_it(node: Node) -> None:
    claim = claim_of("a")
    node.manager.prepare_resources(pod_of("pod-1", claim))
    node.manager.prepare_resources(pod_of("pod-2", claim))

    node.manager.unprepare_claim("a")

    assert len(node.cache) == 0
    assert node.nic.calls == [], "only drivers that the claim is known to have"
    node.manager.prepare_resources(pod_of("pod-1", claim))
    assert node.gpu.prepared == {"a"}


@pytest.mark.parametrize("answer", ["", None, 0, False, {}, [], b""], ids=repr)
def test_only_an_empty_text_or_none_is_success(node: Node, answer: Any) -> None:
    node.manager.prepare_resources(pod_of("pod-1", claim_of("a")))
    node.gpu.unprepare = lambda claims: {claim.uid: answer for claim in claims}  # type: ignore[method-assign]

    if answer in ("", None):
        node.manager.unprepare_resources("pod-1")
        assert len(node.cache) == 0
        return
    with pytest.raises(UnprepareFailed, match=r"the driver answered \w+ where str is expected"):
        node.manager.unprepare_resources("pod-1")
    claim = node.claim("a")
    assert claim.unpreparing


# Rule 6


def test_rule_6_reconcile_is_refused_while_the_pod_list_is_not_complete(node: Node) -> None:
    pod = pod_of("pod-1", claim_of("a"))
    node.manager.prepare_resources(pod)
    calls = list(node.store.calls)

    with pytest.raises(ReconcileRefused, match="may be incomplete"):
        node.manager.reconcile([], complete=False)
    node.manager.reconcile([pod], complete=True)  # nothing to do

    assert node.store.calls == calls
    assert node.gpu.calls_of("unprepare") == []


@pytest.mark.parametrize("by_uid", [True, False])
def test_rule_6_reconcile_unprepares_for_every_pod_that_is_gone(node: Node, by_uid: bool) -> None:
    shared = claim_of("shared")
    alive = pod_of("alive", shared, claim_of("kept"))
    for pod in (alive, pod_of("gone-1", shared, claim_of("a")), pod_of("gone-2", claim_of("b", GPU, NIC))):
        node.manager.prepare_resources(pod)
    node.restart()

    node.manager.reconcile(["alive" if by_uid else alive], complete=True)

    assert {claim.uid: claim.state.pod_uids for claim in node.cache} == {"shared": {"alive"}, "kept": {"alive"}}
    assert node.gpu.prepared == {"shared", "kept"}
    assert node.nic.prepared == set()
    assert node.gpu.calls_of("unprepare") == [("a", "b")]
    assert_memory_equals_disk(node)


def test_rule_6_a_reconcile_that_fails_for_one_claim_goes_on_with_the_others(node: Node) -> None:
    for uid in "abc":
        node.manager.prepare_resources(pod_of(f"pod-{uid}", claim_of(uid)))
    node.gpu.errors["b"] = "busy"

    with pytest.raises(UnprepareFailed) as failed:
        node.manager.reconcile([], complete=True)

    assert failed.value.failures.keys() == {"b"}
    assert [claim.uid for claim in node.cache] == ["b"]
    node.gpu.errors.clear()
    node.manager.reconcile([], complete=True)
    assert len(node.cache) == 0


def test_rule_6_reconcile_retries_an_unprepare_that_failed_though_the_pod_still_lives(node: Node) -> None:
    pod = pod_of("pod-1", claim_of("a"))
    node.manager.prepare_resources(pod)
    node.gpu.errors["a"] = "busy"
    with pytest.raises(UnprepareFailed):
        node.manager.unprepare_claim("a")
    node.gpu.errors.clear()

    node.manager.reconcile([pod], complete=True)

    assert len(node.cache) == 0
    node.manager.prepare_resources(pod)
    assert node.gpu.prepared == {"a"}


def test_rule_6_reconcile_cleans_up_a_claim_without_any_pod(node: Node) -> None:
    node.manager.prepare_resources(pod_of("pod-1", claim_of("a")))
    abandoned = replace(node.on_disk()["a"], pod_uids=frozenset())
    node.cache.change(["a"], lambda known: [known["a"].rewritten(abandoned)])

    node.manager.reconcile(["pod-1"], complete=True)

    assert node.gpu.prepared == set()
    assert node.files() == []
