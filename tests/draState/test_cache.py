"""The cache: rebuilt from files, searched in four ways, with correct indexes after any change."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from checkpointmanager import CheckpointError, CheckpointManager, MemoryStore
from checkpointmanager.testing import damage, watching
from draState import CLAIMS, ClaimConflict, ClaimInfo, ClaimInfoCache

from ..long import times
from .claims import GPU, info_of, state_of
from .node import Node, assert_indexes_agree, assert_memory_equals_disk
from .stores import WatchedStore, lost_sync, no_space


def test_a_cache_is_rebuilt_from_the_files(node: Node) -> None:
    node.cache.put(info_of("a", ["pod-1"], ["gpu-0"]), info_of("b", ["pod-1", "pod-2"], ["gpu-0", "gpu-1"]))

    node.restart()

    assert {claim.uid: claim for claim in node.cache} == {
        "a": info_of("a", ["pod-1"], ["gpu-0"]),
        "b": info_of("b", ["pod-1", "pod-2"], ["gpu-0", "gpu-1"]),
    }
    assert_indexes_agree(node.cache)
    assert_memory_equals_disk(node)


def test_a_claim_is_found_by_uid_by_name_by_pod_and_by_device(node: Node) -> None:
    a, b = info_of("a", ["pod-1"], ["gpu-0"]), info_of("b", ["pod-1", "pod-2"], ["gpu-0"])
    node.cache.put(a, b)

    assert (node.cache.get("a"), node.cache.get("nobody")) == (a, None)
    assert (node.cache.by_name("default", "claim-b"), node.cache.by_name("other", "claim-b")) == (b, None)
    assert set(map(id, node.cache.of_pod("pod-1"))) == {id(node.cache.get("a")), id(node.cache.get("b"))}
    assert node.cache.of_pod("pod-2") == (b,)
    assert node.cache.of_pod("nobody") == ()
    assert node.cache.holders(GPU, "pool", "gpu-0") == {"a", "b"}
    assert node.cache.holders(GPU, "pool", "gpu-1") == frozenset()
    assert node.cache.pods() == {"pod-1", "pod-2"}
    assert ("a" in node.cache, "c" in node.cache, len(node.cache)) == (True, False, 2)


def test_flags_stay_in_memory(node: Node) -> None:
    node.cache.put(info_of("a"))
    node.cache.mark("a", prepared=True, annotations={"seen": "yes"})
    node.cache.mark("nobody", prepared=True)
    marked = node.cache.get("a")

    node.restart()

    assert marked == replace(info_of("a"), prepared=True, annotations={"seen": "yes"})
    assert node.cache.get("a") == info_of("a")
    assert node.store.calls == []


def test_an_unchanged_claim_is_not_written(node: Node) -> None:
    node.cache.put(info_of("a"))
    node.cache.put(info_of("a"))
    node.cache.put(replace(info_of("a"), prepared=True), info_of("b"))
    node.cache.delete()
    assert node.store.calls == [("store", ("a",)), ("store", ("b",))]

    node.restart()
    node.cache.put(info_of("a"), info_of("b"))
    assert node.store.calls == []


@pytest.mark.parametrize(
    ("claims", "uid", "other"),
    [
        ([info_of("c"), info_of("new", name="first")], "new", "a"),
        ([info_of("new", name="same"), info_of("newer", name="same")], "newer", "new"),
        ([info_of("a", ["pod-1"], name="first"), info_of("c", name="second")], "c", "b"),
        ([info_of("a", name="second")], "a", "b"),
    ],
    ids=["a new claim", "two new claims", "behind a claim that keeps its name", "a renamed claim"],
)
def test_two_claims_of_one_name_are_refused_with_both_uids(
    node: Node, claims: list[ClaimInfo], uid: str, other: str
) -> None:
    node.cache.put(info_of("a", name="first"), info_of("b", name="second"))

    with pytest.raises(ClaimConflict, match=f"UID {uid}.*UID {other}") as conflict:
        node.cache.put(*claims)

    assert (conflict.value.uid, conflict.value.other) == (uid, other)
    assert list(node.cache) == [info_of("a", name="first"), info_of("b", name="second")]
    assert_indexes_agree(node.cache)
    assert_memory_equals_disk(node)


def test_two_files_of_one_name_can_both_be_changed_and_go(directory: Path) -> None:
    with CheckpointManager(directory, CLAIMS) as manager:
        manager.create_checkpoint("a", state_of("a", ["pod-1", "pod-2"], name="same"))
        manager.create_checkpoint("b", state_of("b", ["pod-1"], name="same"))
    node = Node(directory)

    node.manager.unprepare_resources("pod-1")
    found = node.cache.by_name("default", "same")
    node.manager.unprepare_resources("pod-2")

    node.stop()
    assert found
    assert found.uid == "a"
    assert node.cache.by_name("default", "same") is None
    assert node.files() == []


def test_a_claim_of_an_earlier_boot_stays_one_until_it_is_written(node: Node) -> None:
    node.cache.put(info_of("a", ["pod-1"]), info_of("b", ["pod-1"]))
    node.reboot("boot-b")

    def annotate_one_and_write_the_other(known: Mapping[str, ClaimInfo]) -> list[ClaimInfo]:
        more_pods = replace(known["b"], state=state_of("b", ["pod-1", "pod-2"]))
        return [replace(known["a"], annotations={"seen": "yes"}), more_pods]

    node.cache.change(["a", "b"], annotate_one_and_write_the_other)

    noted, written = node.claim("a"), node.claim("b")
    assert (noted.annotations, noted.from_this_boot) == ({"seen": "yes"}, False)
    assert written.from_this_boot
    assert node.cache.report().earlier_boot == ("a",)
    node.restart()
    assert node.cache.report().earlier_boot == ("a",), "the files say the same"


def test_one_change_costs_the_same_with_10_claims_and_with_300(directory: Path) -> None:
    def costs(count: int) -> list[list[str]]:
        node = Node(directory / str(count))
        node.cache.put(*(info_of(f"claim-{number}", [f"pod-{number}"]) for number in range(count)))
        node.cache.put(info_of("first"))  # settles, if there were too many changes to sync before
        changes = [info_of("claim-3", ["pod-3", f"another-{number}"]) for number in range(3)]
        made = [
            calls_of(node.directory, lambda: node.cache.put(info_of("new"))),
            *(calls_of(node.directory, partial(node.cache.put, change)) for change in changes),
            calls_of(node.directory, lambda: node.cache.mark("claim-3", prepared=True)),
            calls_of(node.directory, lambda: node.cache.delete("new")),
        ]
        node.stop()
        return made

    with_10, with_300 = costs(10), costs(300)

    assert with_10 == with_300
    put, *_, mark, delete = with_10
    assert ("fdatasync" in put, mark, "fdatasync" in delete) == (True, ["stat"], True)  # of the lock file


def calls_of(directory: Path, work: Callable[[], object]) -> list[str]:
    """The system calls that it makes in that directory."""
    with watching(directory) as calls:
        work()
    return [call.name for call in calls]


# Indexes, whatever happens

UIDS, PODS, DEVICES, NAMES = ["a", "b", "c", "d"], ["p", "q", "r"], ["gpu-0", "gpu-1"], ["x", "y", "z"]
infos = st.builds(
    info_of,
    st.sampled_from(UIDS),
    st.sets(st.sampled_from(PODS)),
    st.sets(st.sampled_from(DEVICES)),
    name=st.sampled_from(NAMES),
)
failures = st.sampled_from([None, None, no_space, lost_sync, KeyboardInterrupt])
steps = st.lists(
    st.tuples(
        st.lists(infos, min_size=1, max_size=3, unique_by=lambda info: info.uid)
        | st.sets(st.sampled_from(UIDS), min_size=1),
        failures,
    ),
    max_size=12,
)


def spoilt() -> MemoryStore:
    """Has two claims of one name, and an unknown one with a previous generation."""
    store = MemoryStore()
    with CheckpointManager(store, CLAIMS) as manager:
        manager.create_checkpoint("a", state_of("a", ["p"], ["gpu-0"], name="x"))
        manager.create_checkpoint("b", state_of("b", ["p", "q"], ["gpu-0"], name="x"))
        manager.create_checkpoint("c", state_of("c", ["r"], ["gpu-1"], name="y"))
        manager.create_checkpoint("c", state_of("c"))
    damage.empty(store, "c")
    return store


@settings(max_examples=times(60, 2000), deadline=None)
@given(steps)
def test_the_indexes_are_always_those_of_the_records(steps: list[tuple[Any, Any]]) -> None:
    store = WatchedStore(spoilt())
    cache = ClaimInfoCache(store)
    assert_indexes_agree(cache)
    for change, failure in steps:
        operation = "delete" if isinstance(change, set) else "store"
        store.work_again()
        if failure:
            store.fail(operation, failure("a") if failure is not KeyboardInterrupt else failure())
        try:
            if isinstance(change, set):
                cache.delete(*change)
            else:
                cache.put(*change)
        except (CheckpointError, ClaimConflict, KeyboardInterrupt):
            pass
        assert_indexes_agree(cache)
