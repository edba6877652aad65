"""A store that is opened read-only needs no lock, and changes nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from checkpointmanager import CheckpointManager, CheckpointWriteFailed, Put, Reason, Replaces

from .conftest import Opening

Manager = CheckpointManager[Any]


def test_a_reader_needs_no_lock_and_writes_nothing(opening: Opening) -> None:
    CheckpointManager(opening()).create_checkpoint("a", 1)
    reader: Manager = CheckpointManager(opening(read_only=True))
    assert reader.get_checkpoint("a").data == 1
    with pytest.raises(CheckpointWriteFailed, match="read_only"):
        reader.create_checkpoint("a", 2)


@pytest.mark.parametrize("owned", [True, False], ids=["with an owner", "without an owner"])
def test_no_call_of_a_reader_changes_anything(opening: Opening, owned: bool) -> None:
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
