"""Each damage does what it says: the manager names the expected reason, and no other checkpoint is affected."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from checkpointmanager import CheckpointManager, CorruptCheckpoint, MemoryStore, Outcome, Reason
from checkpointmanager.testing import Damage, damage, every_damage

Manager = CheckpointManager[Any]


def test_every_damage_is_named_as_it_expects(manager: Manager) -> None:
    reasons: set[Reason | None] = set()
    for done in every_damage(manager, "a"):
        done.expect(manager)
        reasons.add(done.reason)
        assert manager.get_checkpoint("b").data == "other"
    missing = set(Reason) - reasons
    only_files = {Reason.TOO_LARGE, Reason.NOT_A_FILE}
    in_memory = "memory" in repr(manager)
    # Nothing is unreadable to root; swapping needs a second key.
    assert missing - {Reason.UNREADABLE, Reason.WRONG_KEY} == (only_files if in_memory else set())


def test_afterwards_the_checkpoint_is_as_it_was(manager: Manager) -> None:
    before = (manager.get_checkpoint("a"), manager.previous_checkpoint("a"))
    for _ in every_damage(manager, "a", other="b"):
        pass
    assert (manager.get_checkpoint("a"), manager.previous_checkpoint("a")) == before
    assert manager.get_checkpoint("b").data == "other"


def test_keys_whose_file_names_are_encoded_are_damaged_and_restored_too(tmp_path: Path) -> None:
    with CheckpointManager[Any](tmp_path / "claims") as manager:
        for key in ("Ns/Claim ä", "b"):
            for value in (1, 2):
                manager.create_checkpoint(key, value)
        for done in every_damage(manager, "Ns/Claim ä", other="b"):
            done.expect(manager)
        assert manager.get_checkpoint("Ns/Claim ä").data == 2


def test_swapped_files_are_both_damaged(manager: Manager) -> None:
    damage.swap(manager, "a", "b").expect(manager)
    Damage("", "b", Reason.WRONG_KEY, CorruptCheckpoint).expect(manager)


def test_an_expectation_that_is_not_met_says_what_was_found(manager: Manager) -> None:
    done = damage.flip_bit(manager, "a")
    with pytest.raises(AssertionError, match=r"flipped bit . of byte \d+: expected empty, found .*checksum-mismatch"):
        done._replace(reason=Reason.EMPTY).expect(manager)


def test_a_flipped_bit_can_be_repaired_and_a_flipped_byte_cannot(manager: Manager) -> None:
    damage.flip_bit(manager, "a")
    assert manager.recover_checkpoint("a").outcome is Outcome.REPAIRED
    damage.flip_byte(manager, "a")
    assert manager.recover_checkpoint("a").outcome is Outcome.NEEDS_ROLLBACK


def test_a_ruined_checkpoint_can_only_be_rolled_back(manager: Manager) -> None:
    damage.ruin(manager, "a").expect(manager)
    assert manager.recover_checkpoint("a").outcome is Outcome.NEEDS_ROLLBACK
    assert manager.recover_checkpoint("a", rollback=True).outcome is Outcome.ROLLED_BACK
    assert manager.get_checkpoint("a").generation > 2, "the header still stated the generation"


def test_a_ruined_previous_generation_is_no_damage_but_cannot_be_rolled_back_to(manager: Manager) -> None:
    damage.ruin(manager, "a", previous=True).expect(manager)
    assert manager.previous_checkpoint("a") is None
    damage.ruin(manager, "a").expect(manager)
    assert manager.recover_checkpoint("a", rollback=True).outcome is Outcome.HOPELESS


@pytest.mark.parametrize("bit", [0, 7, 150, 280, 300, -1, -8, -9])
def test_a_bit_may_be_flipped_anywhere(manager: Manager, bit: int) -> None:
    damage.flip_bit(manager, "a", bit).expect(manager)


@pytest.mark.parametrize("size", [0, 1, 36, 100, -1])
def test_a_file_may_be_cut_anywhere(manager: Manager, size: int) -> None:
    damage.truncate(manager, "a", size).expect(manager)


def test_a_block_in_the_middle_and_one_at_the_end(manager: Manager) -> None:
    manager.create_checkpoint("a", "x" * 10_000)
    damage.blank_block(manager, "a", 1).expect(manager)
    damage.blank_block(manager, "a", 2).expect(manager)


def test_an_older_generation_is_valid(manager: Manager) -> None:
    damage.replace_by_previous(manager, "a").expect(manager)
    assert manager.get_checkpoint("a").data == "first"


def test_the_path_of_the_directory_is_enough(tmp_path: Path) -> None:
    with CheckpointManager(tmp_path / "claims") as manager:
        manager.create_checkpoint("a", 1)
        damage.empty(tmp_path / "claims", "a").expect(manager)


def test_a_memory_store_has_no_files_to_damage() -> None:
    store = MemoryStore()
    CheckpointManager(store).create_checkpoint("a", 1)
    with pytest.raises(TypeError, match="only a file"):
        damage.change_mode(store, "a")
    with pytest.raises(ValueError, match="no previous generation"):
        damage.replace_by_previous(store, "a")
    assert len(list(every_damage(store, "a"))) == len(damage.EVERYWHERE) - 1
