"""A claim whose file is damaged, too new or of another kind: neither lost nor trusted, and no other claim suffers."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from checkpointmanager import (
    CheckpointError,
    CheckpointManager,
    CheckpointTooNew,
    Schema,
    TransactionFailed,
    WrongKind,
)
from checkpointmanager.testing import damage
from draState import CLAIMS, ClaimInfo, ClaimInfoCache, ClaimInfoState, Pod

from .claims import GPU, NIC, claim_of, info_of, pod_of, state_of
from .node import Node, assert_indexes_agree


@pytest.fixture
def damaged_node(node: Node) -> Node:
    """Claim a is beyond repair, and its previous generation has pod-1 and gpu-0; b and c are good."""
    node.cache.put(info_of("b", ["pod-1"], ["gpu-1"]), info_of("c"))
    node.cache.put(info_of("a", ["pod-1"], ["gpu-0"]))
    node.cache.put(info_of("a", ["pod-1", "pod-2"], ["gpu-0", "gpu-2"]))
    damage.ruin(node.directory, "a")
    node.restart()
    return node


def test_a_file_beyond_repair_is_unknown_with_the_content_of_its_previous_generation(damaged_node: Node) -> None:
    cache = damaged_node.cache
    claim = cache.get("a")

    assert claim
    assert claim == ClaimInfo(state_of("a", ["pod-1"], ["gpu-0"]), from_this_boot=None, unknown=claim.unknown)
    assert claim.guessed
    assert cache.holders(GPU, "pool", "gpu-0") == {"a"}
    assert {claim.uid for claim in cache.of_pod("pod-1")} == {"a", "b"}
    assert cache.by_name("default", "claim-a") is claim
    assert_indexes_agree(cache)


def test_the_report_names_it_and_the_others_are_fine(damaged_node: Node) -> None:
    report = damaged_node.cache.report()

    assert (report.claims, report.degraded, set(report.unknown)) == (3, True, {"a"})
    assert str(damaged_node.file_of("a")) in report.unknown["a"]
    assert "checkpoint-verify" in report.unknown["a"]
    damaged_node.cache.put(info_of("b", ["pod-9"]))
    damaged_node.cache.delete("c")
    assert damaged_node.cache.get("b") == info_of("b", ["pod-9"])


def test_a_pod_that_goes_only_drops_its_reference_and_what_is_guessed_is_never_written(damaged_node: Node) -> None:
    damaged_bytes = damaged_node.file_of("a").read_bytes()

    damaged_node.cache.mark("a", annotations={"told": "operator"})
    damaged_node.manager.unprepare_resources("pod-1")

    claim = damaged_node.claim("a")
    assert (claim.state.pod_uids, bool(claim.unknown)) == (frozenset(), True)
    assert damaged_node.file_of("a").read_bytes() == damaged_bytes
    assert damaged_node.gpu.calls == [("unprepare", ("b",))]
    assert not damaged_node.manager.pod_might_need_to_unprepare("pod-1")
    assert damaged_node.cache.holders(GPU, "pool", "gpu-0") == {"a"}


# Whole files that are not ours to read


def too_new(directory: Path) -> None:
    with CheckpointManager(directory, Schema("ClaimInfo", version=9, type=ClaimInfoState)) as newer:
        newer.create_checkpoint("a", state_of("a", ["pod-1"], ["gpu-0"]))


def of_another_kind(directory: Path) -> None:
    with CheckpointManager(directory, Schema("Lease")) as other:
        other.create_checkpoint("a", {"holder": "x"})


STRANGERS = [(too_new, CheckpointTooNew), (of_another_kind, WrongKind)]


@pytest.mark.parametrize(("stranger", "error"), STRANGERS)
def test_a_strange_file_is_unknown_and_not_overwritten_and_can_be_unprepared_by_its_uid(
    directory: Path, stranger: Callable[[Path], None], error: type[CheckpointError]
) -> None:
    stranger(directory)
    before = (directory / "a.json").read_bytes()
    node = Node(directory)

    with pytest.raises(error):
        node.manager.prepare_resources(pod_of("pod-1", claim_of("a")))
    with pytest.raises(TransactionFailed, match="none of the transaction's changes was made") as failed:
        node.manager.prepare_resources(pod_of("pod-2", claim_of("a"), claim_of("b")))

    assert isinstance(failed.value.__cause__, error)
    assert "b" not in node.cache, "the claims of a pod are recorded all or none"
    assert node.cache.report().unknown.keys() == {"a"}
    assert (directory / "a.json").read_bytes() == before
    assert node.gpu.calls == []

    node.manager.unprepare_claim("a")

    node.stop()
    assert node.gpu.calls == node.nic.calls == [("unprepare", ("a",))]
    assert (node.gpu.refs["a"].name, node.gpu.refs["a"].namespace) == ("", "")
    assert node.files() == []


# Everything that cannot be trusted, at once


def spoil(directory: Path) -> None:
    """One unknown claim of each sort, and a good one."""
    with CheckpointManager(directory, CLAIMS) as manager:
        manager.create_checkpoint("a", state_of("a", ["pod-1"], ["gpu-0"]))
        manager.create_checkpoint("damaged", state_of("damaged", ["pod-1"]))
        manager.create_checkpoint("damaged", state_of("damaged", ["pod-1", "pod-2"]))
        manager.create_checkpoint("stranger", state_of("stranger", ["pod-3"]))
        manager.create_checkpoint("stranger", state_of("somebody-else"))
        manager.create_checkpoint("confused", state_of("somebody-else", ["pod-9"]))
        manager.create_checkpoint("confused", state_of("confused", ["pod-9"]))
    damage.truncate(directory, "damaged")
    damage.truncate(directory, "confused")
    with CheckpointManager(directory, Schema("ClaimInfo", version=9, type=ClaimInfoState)) as newer:
        newer.create_checkpoint("newer", state_of("newer"))
    with CheckpointManager(directory, Schema("Lease")) as other:
        other.create_checkpoint("lease", {"holder": "x"})
    with CheckpointManager(directory, Schema(CLAIMS.kind, CLAIMS.version)) as program:
        program.create_checkpoint("misfit", {"driver_states": "none"})


def test_what_cannot_be_trusted_is_unknown_with_the_content_of_its_previous_generation(directory: Path) -> None:
    spoil(directory)

    cache = ClaimInfoCache(directory)

    unknown = cache.report().unknown
    cache.close()
    assert unknown.keys() == {"damaged", "newer", "stranger", "lease", "confused", "misfit"}
    assert cache.by_name("", "") is None, "those of which nothing is known have no name"
    assert "the file is whole" in unknown["misfit"]
    assert "truncated" in unknown["damaged"]
    assert "newer program" in unknown["newer"]
    assert unknown["stranger"] == "the file holds the state of another claim"
    assert "kind 'Lease'" in unknown["lease"]
    states = {claim.uid: claim.state for claim in cache}
    assert states["a"] == state_of("a", ["pod-1"], ["gpu-0"])
    assert states["damaged"] == state_of("damaged", ["pod-1"])
    assert states["stranger"] == state_of("stranger", ["pod-3"])
    for uid in ("newer", "lease", "confused", "misfit"):
        assert states[uid] == ClaimInfoState(uid, "", ""), "another claim's content says nothing about this one"


# What the manager does with an unknown claim


def test_unprepare_by_uid_goes_to_all_drivers(damaged_node: Node) -> None:
    damaged_node.manager.unprepare_claim("a")

    assert damaged_node.gpu.calls == damaged_node.nic.calls == [("unprepare", ("a",))]
    assert damaged_node.gpu.refs["a"].name == "claim-a"
    assert "a" not in damaged_node.cache
    assert damaged_node.cache.holders(GPU, "pool", "gpu-0") == frozenset()
    assert ".previous-a" not in damaged_node.files()


def test_preparing_again_heals_it_and_keeps_the_pods_of_the_previous_generation(damaged_node: Node) -> None:
    damaged_bytes = damaged_node.file_of("a").read_bytes()
    pod = pod_of("pod-3", claim_of("a", NIC))

    damaged_node.manager.prepare_resources(pod)

    claim = damaged_node.claim("a")
    assert (claim.prepared, claim.unknown) == (True, "")
    assert claim.state.pod_uids == {"pod-1", "pod-3"}
    assert claim.state.driver_states.keys() == {GPU, NIC}
    assert damaged_node.on_disk()["a"] == claim.state
    assert damaged_node.cache.holders(GPU, "pool", "gpu-0") == {"a"}
    assert [path.read_bytes() for path in (damaged_node.directory / ".quarantine").iterdir()] == [damaged_bytes]

    damaged_node.manager.reconcile([pod], complete=True)

    assert damaged_node.on_disk()["a"].pod_uids == {"pod-3"}, "the old pods are gone"


USER_OF_B, USER_OF_A = pod_of("pod-1", claim_of("b")), pod_of("pod-7", claim_of("a"))


@pytest.mark.parametrize(
    ("active", "left"),
    [([USER_OF_B], ["b"]), ([USER_OF_B, USER_OF_A], ["a", "b"]), (["pod-1"], ["a", "b"]), (["pod-9"], ["a"])],
    ids=["no pod uses it", "a pod uses it", "uids", "other uids"],
)
def test_reconcile_unprepares_an_unknown_claim_only_if_it_knows_that_no_pod_uses_it(
    damaged_node: Node, active: list[Pod | str], left: list[str]
) -> None:
    damaged_node.manager.reconcile(active, complete=True)

    assert sorted(claim.uid for claim in damaged_node.cache) == left
    assert (damaged_node.nic.calls == []) == ("a" in left)


def test_reconcile_leaves_a_claim_that_a_new_pod_heals_meanwhile(damaged_node: Node) -> None:
    node = damaged_node
    node.file_of("b").write_bytes(b"")
    node.restart()

    def heal_the_other(operation: str) -> None:
        first = node.gpu.calls[-1][1][0]
        if operation == "unprepare" and first in "ab":
            node.gpu.before = lambda _: None
            pod = pod_of("pod-3", claim_of("b" if first == "a" else "a"))
            another_thread = threading.Thread(target=node.manager.prepare_resources, args=(pod,))
            another_thread.start()
            another_thread.join()

    node.gpu.before = heal_the_other

    node.manager.reconcile([pod_of("pod-1")], complete=True)

    (left,) = node.cache
    assert left.prepared
    assert node.gpu.prepared == {left.uid}
