"""What the cache must not confuse: a claim that was written and one that was not, one conflict among many changes,
an error that leaves a doubt and one that does not."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest

from checkpointmanager import CheckpointError
from draState import ClaimConflict, ClaimInfo

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
    node.checkpointer.fail_before("store", CheckpointError("refused"))

    with pytest.raises(CheckpointError, match="refused"):
        node.cache.put(info_of("a", ["pod-2"]))

    assert node.cache.get("a") == info_of("a", ["pod-1"])
    assert not node.cache.report().degraded


def test_a_deletion_that_is_refused_without_doubt_keeps_a_trusted_claim(node: Node) -> None:
    node.cache.put(info_of("a", ["pod-1"]))
    node.checkpointer.fail_before("delete", CheckpointError("refused"))

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
