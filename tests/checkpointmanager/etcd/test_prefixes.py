"""Stores below prefixes that look alike: each sees its own checkpoints, and nothing of the others."""

from __future__ import annotations

from typing import Any

import pytest

from checkpointmanager import CheckpointManager, CheckpointNotFound, DirectoryLocked, Reason

from .conftest import Opening

Manager = CheckpointManager[Any]


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


def test_a_slash_at_the_end_of_a_prefix_changes_nothing(opening: Opening, prefix: str) -> None:
    first = opening(prefix=f"{prefix}/")
    CheckpointManager(first).create_checkpoint("a", 1)
    with pytest.raises(DirectoryLocked):
        opening()
    assert opening(read_only=True).keys() == ["a"]
    assert first.path.endswith(prefix)
