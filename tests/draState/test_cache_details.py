"""What the cache must not confuse: a claim that was written and one that was not, one conflict among many changes,
an error that leaves a doubt and one that does not."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from checkpointmanager import CheckpointError, CheckpointManager, MemoryStore
from draState import CLAIMS, ClaimConflict, ClaimInfo, ClaimInfoCache

from .claims import info_of, state_of
from .node import Node, assert_indexes_agree, assert_memory_equals_disk


def test_a_claim_of_an_earlier_boot_stays_one_until_it_is_written(node: Node) -> None:
    node.cache.put(info_of("a", ["pod-1"]), info_of("b", ["pod-1"]))
    node.reboot("boot-b")

    def annotate_one_and_write_the_other(known: Mapping[str, ClaimInfo]) -> list[ClaimInfo]:
        more_pods = replace(known["b"], state=state_of("b", ["pod-1", "pod-2"]))
        return [replace(known["a"], annotations={"seen": "yes"}), more_pods]

    node.cache.change(["a", "b"], annotate_one_and_write_the_other)

    noted, written = node.cache.get("a"), node.cache.get("b")
    assert noted
    assert written
    assert (noted.annotations, noted.from_this_boot) == ({"seen": "yes"}, False)
    assert written.from_this_boot
    assert node.cache.report().earlier_boot == ("a",)


def test_a_conflict_is_found_behind_a_claim_that_keeps_its_name(node: Node) -> None:
    node.cache.put(info_of("a", name="first"), info_of("b", name="second"))

    with pytest.raises(ClaimConflict):
        node.cache.put(info_of("a", ["pod-1"], name="first"), info_of("c", name="second"))

    assert {claim.uid for claim in node.cache} == {"a", "b"}
    assert node.cache.get("a") == info_of("a", name="first")
    assert_indexes_agree(node.cache)
    assert_memory_equals_disk(node)


def test_an_error_that_says_nothing_of_doubt_leaves_none(node: Node) -> None:
    node.cache.put(info_of("a", ["pod-1"]))
    node.store.fail("store", CheckpointError("refused"))

    with pytest.raises(CheckpointError, match="refused"):
        node.cache.put(info_of("a", ["pod-2"]))

    assert node.cache.get("a") == info_of("a", ["pod-1"])
    assert not node.cache.report().degraded


def test_a_deletion_that_is_refused_without_doubt_keeps_a_trusted_claim(node: Node) -> None:
    node.cache.put(info_of("a", ["pod-1"]))
    node.store.fail("delete", CheckpointError("refused"))

    with pytest.raises(CheckpointError, match="refused"):
        node.cache.delete("a")

    claim = node.cache.get("a")
    assert claim
    assert (claim.unpreparing, claim.prepared, claim.unknown) == (True, False, "")
    assert_memory_equals_disk(node)


def test_a_reader_that_finds_an_index_older_or_newer_than_the_claims_leaves_those_out(node: Node) -> None:
    """Reads take no lock, so they may come between the two. Here the index is as such a reader would see it."""
    node.cache.put(info_of("a", ["pod-1"]))
    node.cache._pods["pod-9"] = ("gone", "a")
    node.cache._uids["default", "other"] = ("gone", "a")

    assert node.cache.of_pod("pod-9") == ()
    assert node.cache.by_name("default", "other") is None


def test_a_claim_cannot_take_the_name_of_another_by_a_change(node: Node) -> None:
    node.cache.put(info_of("a", name="first"), info_of("b", name="second"))
    with pytest.raises(ClaimConflict):
        node.cache.put(info_of("a", name="second"))
    assert node.cache.get("a") == info_of("a", name="first")


def test_of_two_claims_with_one_name_the_trusted_one_is_found() -> None:
    """Their files were written by programs that did not look."""
    store = MemoryStore()
    with CheckpointManager(store, CLAIMS) as manager:
        manager.create_checkpoint("b", state_of("b", name="same"))
        manager.create_checkpoint("c", state_of("c", name="same"))
    cache = ClaimInfoCache(store)
    first = cache.by_name("default", "same")
    assert first
    assert first.uid == "b"
    cache._swap(replace(first, unknown="damaged"))
    second = cache.by_name("default", "same")
    assert second
    assert second.uid == "c"


SECOND: dict[str, Callable[[ClaimInfoCache], object]] = {
    "change": lambda cache: cache.change(["a"], lambda known: [replace(known["a"], annotations={"second": "yes"})]),
    "mark": lambda cache: cache.mark("a", annotations={"second": "yes"}),
    "delete": lambda cache: cache.delete("a"),
}


@pytest.mark.parametrize("second", SECOND)
def test_who_changes_a_claim_is_waited_for(node: Node, second: str) -> None:
    node.cache.put(info_of("a", ["pod-1"]))
    inside, go_on = threading.Event(), threading.Event()

    def slow(known: Mapping[str, ClaimInfo]) -> list[ClaimInfo]:
        inside.set()
        assert go_on.wait(20)
        return [replace(known["a"], state=state_of("a", ["pod-2"]))]

    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(node.cache.change, ["a"], slow)
        assert inside.wait(20)
        other = pool.submit(SECOND[second], node.cache)
        with pytest.raises(TimeoutError):
            other.result(0.1)
        go_on.set()
        first.result(20)
        other.result(20)
    claim = node.cache.get("a")
    assert (claim is None) == (second == "delete")
    if claim:
        assert (claim.annotations, claim.state) == ({"second": "yes"}, state_of("a", ["pod-2"]))


def test_deleting_a_claim_that_is_not_there_is_no_error(node: Node) -> None:
    node.cache.delete("nobody")
    node.store.fail("delete", CheckpointError("refused"))
    with pytest.raises(CheckpointError, match="refused"):
        node.cache.delete("nobody")
    assert len(node.cache) == 0
