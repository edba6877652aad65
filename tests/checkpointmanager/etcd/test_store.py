"""The store on etcd as a Store: the conformance suite, its page, readers, prefixes that look alike, closing."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from checkpointmanager import (
    CheckpointManager,
    CheckpointNotFound,
    CheckpointWriteFailed,
    DirectoryLocked,
    ManagerClosed,
    Put,
    Reason,
    Replaces,
    Store,
)
from checkpointmanager.etcd import EtcdStore
from checkpointmanager.testing import StoreConformance
from docs import pages
from tests.docs.programs import output_of

from ..processes import LIMIT, in_forked_child, run_together
from .conftest import Opening
from .servers import Cluster

Manager = CheckpointManager[Any]


class TestEtcdStore(StoreConformance):
    @pytest.fixture
    def store(self, store: EtcdStore) -> Store:
        return store


def test_the_code_of_the_page_runs_from_top_to_bottom(cluster: Cluster, tmp_path: Path) -> None:
    claims = tmp_path / "claims"
    program = "\n".join(pages.blocks_of("checkpointmanager/ETCD.md", "python"))
    for shown, here in (("http://127.0.0.1:2379", cluster.endpoints[0]), ("/var/lib/agent/claims", str(claims))):
        assert shown in program
        program = program.replace(shown, here)

    assert output_of(f"{program}\nprint(failures)", tmp_path) == ["{}"]
    assert sorted(os.listdir(claims)) == [".lock", "pod-7.json"]


@pytest.mark.parametrize("owned", [True, False], ids=["with an owner", "without an owner"])
def test_a_reader_needs_no_lock_and_no_call_of_it_changes_anything(opening: Opening, owned: bool) -> None:
    owner = opening()
    assert owner.commit([Put("a", b"rubbish", 1, Replaces.ABSENT)]) == {}
    copy = owner.quarantine("a", Reason.NOT_JSON)
    assert owner.commit([Put("a", b"more rubbish", 1, Replaces.DAMAGED)]) == {}
    if not owned:
        owner.close()
    reader = opening(read_only=True)
    before = dict(reader.snapshot())
    acts: list[Callable[[], object]] = [
        lambda: reader.commit([Put("a", b"new", 1, Replaces.DAMAGED)]),
        lambda: reader.commit([Put("a", b"new", 1, Replaces.DAMAGED)], together=True),
        lambda: reader.quarantine("a", Reason.NOT_JSON),
        lambda: reader.delete_copy(copy),
        lambda: CheckpointManager(reader).create_checkpoint("b", 2),
    ]
    for act in acts:
        with pytest.raises(CheckpointWriteFailed, match="read_only"):
            act()
    assert dict(reader.snapshot()) == before
    assert (".lock" in before) == owned


def test_a_reader_of_a_prefix_that_nobody_has_used_finds_nothing(opening: Opening) -> None:
    reader: Manager = CheckpointManager(opening(read_only=True))
    assert reader.list_checkpoints() == []
    assert reader.load().checkpoints == {}
    assert reader.get_checkpoint("a", None) is None


@pytest.mark.parametrize("other", ["/inner", "0", "-", ".json", "/a.json", "/.lock", "é"])
def test_a_store_whose_prefix_begins_with_that_of_another_is_not_part_of_it(
    opening: Opening, prefix: str, other: str
) -> None:
    first, second = opening(), opening(prefix=prefix + other)
    one: Manager = CheckpointManager(first)
    two: Manager = CheckpointManager(second)
    one.create_checkpoint("a", 1)
    two.create_checkpoint("b", 1)
    second.quarantine("b", Reason.NOT_JSON)
    assert (one.list_checkpoints(), two.list_checkpoints()) == (["a"], ["b"])
    assert {*one.load().checkpoints} == {"a"}
    assert first.quarantined() == {}
    with pytest.raises(CheckpointNotFound):
        one.get_checkpoint("b")


def test_a_slash_at_the_end_of_a_prefix_or_an_endpoint_changes_nothing(
    cluster: Cluster, opening: Opening, prefix: str
) -> None:
    first = opening(prefix=f"{prefix}/", endpoints=[f"{endpoint}/" for endpoint in cluster.endpoints])
    assert first.path == f"etcd://{cluster.endpoints[0].removeprefix('http://')}{prefix}"
    CheckpointManager(first).create_checkpoint("a", 1)
    with pytest.raises(DirectoryLocked):
        opening()
    assert opening(read_only=True).keys() == ["a"]


def test_a_forked_child_is_refused_and_the_parent_goes_on(store: EtcdStore) -> None:
    manager: Manager = CheckpointManager(store)
    manager.create_checkpoint("a", 1)
    for act in _acts(manager, store):
        with pytest.raises(ManagerClosed, match="before a fork"):
            in_forked_child(act)
    assert in_forked_child(store.close) is None
    manager.create_checkpoint("a", 3)
    assert manager.get_checkpoint("a").data == 3


def test_after_close_every_call_is_refused_and_closing_again_is_fine(store: EtcdStore) -> None:
    manager: Manager = CheckpointManager(store)
    manager.create_checkpoint("a", 1)
    store.close()
    store.close()
    for act in _acts(manager, store):
        with pytest.raises(ManagerClosed):
            act()


def _acts(manager: Manager, store: EtcdStore) -> list[Callable[[], object]]:
    return [
        lambda: manager.get_checkpoint("a"),
        lambda: manager.create_checkpoint("a", 2),
        lambda: "a" in manager,
        manager.list_checkpoints,
        manager.load,
        store.quarantined,
        lambda: store.commit([]),
    ]


def test_closing_waits_for_a_running_call(store: EtcdStore) -> None:
    manager: Manager = CheckpointManager(store)
    manager.create_checkpoint("a", 1)
    inside, go_on = threading.Event(), threading.Event()

    def change(number: int) -> int:
        inside.set()
        assert go_on.wait(LIMIT)
        return number + 1

    def close() -> None:
        assert inside.wait(LIMIT)
        threading.Timer(0.05, go_on.set).start()
        store.close()
        assert go_on.is_set()

    run_together(lambda: manager.update_checkpoint("a", change), close)
