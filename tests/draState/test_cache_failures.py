"""Disk first, then memory: whatever the disk returns, memory has only what is certainly stored."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

import pytest

from checkpointmanager import BatchFailed, CheckpointError, CheckpointWriteFailed
from draState import ClaimNotPrepared, PrepareFailed, UnprepareFailed

from .claims import GPU, claim_of, info_of, pod_of, state_of
from .node import Node, assert_indexes_agree, assert_memory_equals_disk
from .stores import lost_sync, no_space

Failure = Callable[[str], CheckpointWriteFailed]


def batch_failed(failures: Mapping[str, CheckpointError]) -> BatchFailed:
    return BatchFailed("/claims", failures)


@pytest.mark.parametrize("error", [no_space("a"), CheckpointError("refused")])
def test_a_failed_write_changes_nothing_in_memory(node: Node, error: CheckpointError) -> None:
    node.cache.put(info_of("a", ["pod-1"]))
    before = node.cache.get("a")
    node.store.fail("store", error)

    for claim in (info_of("a", ["pod-1", "pod-2"]), info_of("b")):
        with pytest.raises(type(error)):
            node.cache.put(claim)

    assert node.cache.get("a") is before
    assert "b" not in node.cache
    assert not node.cache.report().degraded
    assert_indexes_agree(node.cache)
    assert_memory_equals_disk(node)


def test_what_is_in_doubt_is_unknown_with_the_pods_of_both(node: Node) -> None:
    node.cache.put(info_of("a", ["pod-1"], ["gpu-0"]))
    node.cache.mark("a", prepared=True)
    node.store.fail("store", lost_sync("a"))

    with pytest.raises(CheckpointWriteFailed):
        node.cache.put(replace(info_of("a", ["pod-2"], ["gpu-0"]), prepared=True))

    claim = node.claim("a")
    assert claim.state.pod_uids == {"pod-1", "pod-2"}
    assert (claim.prepared, claim.in_doubt, claim.guessed) == (True, True, False)
    assert claim.served == state_of("a", ["pod-1"], ["gpu-0"]), "containers get the devices acknowledged before"
    assert "may not survive" in node.cache.report().unknown["a"]
    assert node.cache.report().degraded
    assert node.cache.holders(GPU, "pool", "gpu-0") == {"a"}
    assert_indexes_agree(node.cache)


def test_a_new_claim_in_doubt_is_unknown_and_is_written_again_even_if_nothing_changed(node: Node) -> None:
    node.store.fail("store", lost_sync("a"))
    with pytest.raises(CheckpointWriteFailed):
        node.cache.put(info_of("a", ["pod-1"]))
    claim = node.claim("a")
    assert (claim.state, claim.in_doubt, bool(claim.unknown)) == (state_of("a", ["pod-1"]), True, True)
    node.store.work_again()

    node.cache.put(info_of("a", ["pod-1"]))

    assert node.store.calls == [("store", ("a",)), ("store", ("a",))]
    assert node.cache.get("a") == info_of("a", ["pod-1"])


def test_a_batch_that_failed_in_part_leaves_exactly_the_durable_part(node: Node) -> None:
    node.cache.put(info_of("a"), info_of("b"), info_of("c"))
    failed = batch_failed({"b": no_space("b"), "c": lost_sync("c")})
    node.store.fail("store", failed)

    claims = [info_of(uid, ["pod-1"]) for uid in "abc"]
    with pytest.raises(BatchFailed):
        node.cache.change("abc", lambda _: claims, independent=True)

    assert node.cache.get("a") == info_of("a", ["pod-1"])
    assert node.cache.get("b") == info_of("b")
    assert node.cache.report().unknown.keys() == {"c"}
    assert {claim.uid for claim in node.cache.of_pod("pod-1")} == {"a", "c"}
    assert_memory_equals_disk(node)


@pytest.mark.parametrize("error", [KeyboardInterrupt(), no_space("a"), lost_sync("a"), CheckpointError("refused")])
def test_a_delete_that_failed_keeps_the_claim_unpreparing(node: Node, error: BaseException) -> None:
    node.cache.put(info_of("a", ["pod-1"], ["gpu-0"]))
    node.cache.mark("a", prepared=True)
    node.store.fail("delete", error)

    with pytest.raises(type(error)):
        node.cache.delete("a")

    claim = node.claim("a")
    assert claim.state == state_of("a", ["pod-1"], ["gpu-0"])
    assert (claim.unpreparing, claim.prepared) == (True, False)
    doubt = isinstance(error, KeyboardInterrupt) or getattr(error, "in_doubt", False)
    assert (bool(claim.unknown), claim.in_doubt, claim.guessed) == (doubt, doubt, False)
    assert node.cache.holders(GPU, "pool", "gpu-0") == {"a"}
    node.store.work_again()
    node.cache.delete("a")
    assert len(node.cache) == 0
    assert node.files() == []


# What the manager does about it


@pytest.mark.parametrize(("failure", "why"), [(lost_sync, "may not survive"), (no_space, "No space left")])
@pytest.mark.parametrize("reconciles", [False, True])
def test_a_delete_that_failed_is_tried_again(node: Node, failure: Failure, why: str, reconciles: bool) -> None:
    pod = pod_of("pod-1", claim_of("a"))
    node.manager.prepare_resources(pod)
    node.store.fail("delete", batch_failed({"a": failure("a")}))
    with pytest.raises(UnprepareFailed, match=f"claim a.*{why}"):
        node.manager.unprepare_resources(pod)
    assert node.cache.holders(GPU, "pool", "dev-a") == {"a"}
    assert node.manager.pod_might_need_to_unprepare("pod-1")

    node.store.work_again()
    if reconciles:
        node.manager.reconcile(["pod-2"], complete=True)
    else:
        node.manager.unprepare_resources(pod)

    assert len(node.cache) == 0
    assert node.gpu.prepared == set()


def test_a_neighbour_in_doubt_unprepares_no_claim(node: Node) -> None:
    """Two pods share a claim. While the second joins, a directory sync fails; then it leaves again."""
    claim = claim_of("a")
    first, second = pod_of("pod-1", claim), pod_of("pod-2", claim)
    node.manager.prepare_resources(first)
    devices = node.manager.get_resources(first, "main")
    node.store.fail("store", lost_sync("a"))
    with pytest.raises(CheckpointWriteFailed):
        node.manager.prepare_resources(second)

    assert node.manager.get_resources(first, "main") == devices
    with pytest.raises(ClaimNotPrepared):
        node.manager.get_resources(second, "main")
    assert node.manager.pod_might_need_to_unprepare("pod-2"), "its reference may be on disk"

    node.store.work_again()
    node.manager.unprepare_resources(second)

    assert node.manager.get_resources(first, "main") == devices
    assert node.on_disk()["a"].pod_uids == {"pod-1"}
    assert node.cache.report().unknown == {}
    node.manager.prepare_resources(second)
    assert node.manager.get_resources(second, "main") == devices
    assert node.on_disk()["a"].pod_uids == {"pod-1", "pod-2"}
    assert node.gpu.calls == [("prepare", ("a",))]


def test_a_result_in_doubt_is_not_served_until_it_is_recorded(node: Node) -> None:
    pod = pod_of("pod-1", claim_of("a"))
    node.gpu.after = lambda _: node.store.fail("store", lost_sync("a"))
    with pytest.raises(PrepareFailed):
        node.manager.prepare_resources(pod)
    with pytest.raises(ClaimNotPrepared):
        node.manager.get_resources(pod, "main")
    assert node.cache.holders(GPU, "pool", "dev-a") == {"a"}, "the driver has handed out the device"

    node.gpu.after = lambda _: None
    node.store.work_again()
    node.manager.prepare_resources(pod)

    assert node.manager.get_resources(pod, "main").cdi_devices
