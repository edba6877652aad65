"""Recovery: an exact repair where it can be proved, a rollback or a removal only on request, else nothing.

plan_recovery says what could be done and at what cost, and touches nothing; recover_checkpoint also applies it.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from checkpointmanager import (
    CheckpointManager,
    CheckpointNotFound,
    CheckpointWriteFailed,
    Event,
    EventKind,
    InvalidKey,
    Outcome,
    PlanOutdated,
    Reason,
    Schema,
)
from checkpointmanager.format import MAX_GENERATION, open_any, seal
from checkpointmanager.testing import damage

from ..contents import names, quarantined
from ..leases import BOOT, LEASES, NEW, OLD, Lease, LeaseManager


def kinds(events: list[Event]) -> list[EventKind]:
    return [event.kind for event in events]


def everything(directory: Path) -> dict[str, tuple[bytes, int]]:
    return {path.name: (path.read_bytes(), path.stat().st_ino) for path in directory.iterdir() if path.is_file()}


@pytest.fixture
def twice(manager: LeaseManager) -> LeaseManager:
    """Key a is OLD in generation 1, and NEW in generation 2."""
    manager.create_checkpoint("a", OLD)
    manager.create_checkpoint("a", NEW)
    return manager


def test_a_whole_checkpoint_needs_nothing(twice: LeaseManager, directory: Path, events: list[Event]) -> None:
    before = everything(directory)

    plan = twice.plan_recovery("a")

    assert (plan.key, plan.path) == ("a", str(directory / "a.json"))
    assert (plan.outcome, plan.exact, plan.lost, plan.rollback_to) == (Outcome.INTACT, False, "nothing", 0)
    assert (plan.reason, plan.damage) == (None, "")
    assert plan.apply(rollback=True, discard=True).outcome is Outcome.INTACT
    assert everything(directory) == before
    assert events == []


@pytest.mark.parametrize("byte", [0, 12, 20, 40, -20, -2, -1])
def test_a_flipped_bit_is_repaired_exactly(
    twice: LeaseManager, directory: Path, events: list[Event], byte: int
) -> None:
    good = (directory / "a.json").read_bytes()
    damage.flip_bit(directory, "a", byte * 8)
    damaged = (directory / "a.json").read_bytes()
    before = everything(directory)

    plan = twice.plan_recovery("a")

    assert (plan.outcome, plan.exact, plan.lost, plan.rollback_to) == (Outcome.REPAIRED, True, "nothing", 0)
    assert plan.reason is Reason.CHECKSUM_MISMATCH
    assert "bit 0 of byte" in plan.detail
    assert everything(directory) == before
    assert kinds(events) == [EventKind.DAMAGE]

    recovery = twice.recover_checkpoint("a")

    assert (recovery.outcome, recovery.detail) == (Outcome.REPAIRED, plan.detail)
    assert (directory / "a.json").read_bytes() == good
    assert Path(recovery.quarantined).read_bytes() == damaged
    assert quarantined(directory) == [damaged]
    assert kinds(events)[-2:] == [EventKind.QUARANTINED, EventKind.RECOVERED]
    with pytest.raises(PlanOutdated):
        plan.apply()
    assert twice.create_checkpoint("a", OLD).generation == 3


def test_a_rollback_says_what_it_costs_and_needs_consent(
    twice: LeaseManager, directory: Path, events: list[Event]
) -> None:
    damage.ruin(directory, "a")
    before = everything(directory)

    plan = twice.plan_recovery("a")

    assert (plan.outcome, plan.exact, plan.rollback_to) == (Outcome.NEEDS_ROLLBACK, False, 1)
    assert plan.lost == "what was written after generation 1"
    for without_consent in (plan.apply(discard=True), twice.recover_checkpoint("a")):
        assert (without_consent.outcome, without_consent.rollback_to) == (Outcome.NEEDS_ROLLBACK, 1)
        assert "generation 1" in without_consent.detail
    assert everything(directory) == before
    assert {*kinds(events)} == {EventKind.DAMAGE}

    assert plan.apply(rollback=True).outcome is Outcome.ROLLED_BACK
    assert (twice.get_checkpoint("a").data, twice.get_checkpoint("a").generation) == (OLD, 3)
    assert not twice.create_checkpoint("a", NEW).unchanged, "the lost value is written again"


def test_a_rollback_keeps_the_boot_and_the_time_of_its_data(directory: Path) -> None:
    with CheckpointManager(directory, LEASES, boot_id="boot-before") as manager:
        before = manager.create_checkpoint("a", OLD)
        manager.create_checkpoint("a", NEW)
    damage.ruin(directory, "a")
    damaged = (directory / "a.json").read_bytes()

    with CheckpointManager(directory, LEASES, boot_id=BOOT) as manager:
        assert manager.recover_checkpoint("a", rollback=True).outcome is Outcome.ROLLED_BACK
        found = manager.get_checkpoint("a")

    assert (found.data, found.generation) == (OLD, 3)
    assert (found.boot, found.written) == (before.boot, before.written), "they say when the data was true"
    assert found.from_this_boot is False
    assert quarantined(directory) == [damaged]


@pytest.mark.parametrize("states_nothing", [False, True])
def test_a_rollback_goes_above_every_generation_that_is_stated(
    manager: LeaseManager, directory: Path, states_nothing: bool
) -> None:
    for n in range(9):
        manager.create_checkpoint("a", Lease("a", n))
        if n == 3:
            fourth = (directory / "a.json").read_bytes()
    damage.ruin(directory, "a")
    if states_nothing:
        (directory / "a.json").write_bytes(bytes(300))
    else:
        (directory / ".previous-a").write_bytes(fourth)  # as a failed write may leave it: older by more than one

    manager.recover_checkpoint("a", rollback=True)

    assert manager.get_checkpoint("a").data == Lease("a", 7 if states_nothing else 3)
    assert manager.get_checkpoint("a").generation == 10
    assert manager.create_checkpoint("a", NEW).generation == 11


def test_what_is_hopeless_is_left_unless_it_is_to_be_discarded(manager: LeaseManager, directory: Path) -> None:
    manager.create_checkpoint("a", OLD)
    damage.ruin(directory, "a")
    damaged = (directory / "a.json").read_bytes()
    before = everything(directory)

    plan = manager.plan_recovery("a")

    assert (plan.outcome, plan.lost, plan.rollback_to) == (Outcome.HOPELESS, "all of it", 0)
    assert plan.apply(rollback=True).outcome is Outcome.HOPELESS
    assert everything(directory) == before

    discarded = plan.apply(discard=True)
    assert discarded.outcome is Outcome.DISCARDED
    assert Path(discarded.quarantined).read_bytes() == damaged
    assert manager.get_checkpoint("a", None) is None


def torn(directory: Path) -> None:
    damage.ruin(directory, "a", previous=True)


def of_another_key(directory: Path) -> None:
    (directory / ".previous-a").write_bytes((directory / ".previous-b").read_bytes())


@pytest.mark.parametrize("spoil", [torn, of_another_key])
def test_a_previous_generation_that_is_not_this_keys_is_not_rolled_back_to(
    twice: LeaseManager, directory: Path, spoil: Callable[[Path], None]
) -> None:
    twice.create_checkpoint("b", OLD)
    twice.create_checkpoint("b", NEW)
    damage.ruin(directory, "a")
    spoil(directory)

    assert twice.recover_checkpoint("a", rollback=True).outcome is Outcome.HOPELESS


@pytest.mark.parametrize(
    ("schema", "key"),
    [(Schema("Lease", version=2, type=Lease), "a"), (Schema("Other", type=Lease), "a"), (LEASES, "b")],
    ids=["a newer program", "another kind", "another key"],
)
def test_bytes_that_would_be_whole_but_belong_elsewhere_are_not_put_back(
    directory: Path, schema: Schema[Lease], key: str
) -> None:
    with CheckpointManager(directory, schema) as theirs:
        theirs.create_checkpoint(key, OLD)
        theirs.create_checkpoint(key, NEW)
    if key != "a":
        os.rename(directory / f"{key}.json", directory / "a.json")
    damage.flip_bit(directory, "a")
    damaged = (directory / "a.json").read_bytes()

    with CheckpointManager(directory, LEASES) as manager:
        assert manager.recover_checkpoint("a", rollback=True).outcome is Outcome.HOPELESS
    assert (directory / "a.json").read_bytes() == damaged


@pytest.mark.parametrize("previous", [False, True])
def test_a_folder_is_neither_replaced_nor_discarded_until_somebody_moves_it_away(
    manager: LeaseManager, directory: Path, previous: bool
) -> None:
    for lease in (OLD, NEW)[: 1 + previous]:
        manager.create_checkpoint("a", lease)
    damage.replace_by_directory(directory, "a")

    with pytest.raises(CheckpointWriteFailed, match="move it away") as refused:
        manager.plan_recovery("a").apply(rollback=previous, discard=not previous)
    assert (refused.value.errno, refused.value.in_doubt) == (errno.EISDIR, False)
    assert (directory / "a.json").is_dir()

    (directory / "a.json").rmdir()
    (directory / "a.json").write_bytes(b"")
    recovered = manager.recover_checkpoint("a", rollback=True)
    assert recovered.outcome is (Outcome.ROLLED_BACK if previous else Outcome.HOPELESS)


def test_an_exact_repair_restores_these_bytes_even_if_the_previous_generation_is_newer(directory: Path) -> None:
    """Somebody went back to an older file on purpose; then one of its bits flipped."""
    with CheckpointManager(directory) as manager:
        manager.create_checkpoint("a", "chosen")
        chosen = (directory / "a.json").read_bytes()
        manager.create_checkpoint("a", "newer")
        manager.create_checkpoint("a", "newest")
    (directory / "a.json").write_bytes(chosen)
    damage.flip_bit(directory, "a")

    with CheckpointManager(directory) as manager:
        assert manager.load(repair=True).checkpoints["a"].data == "chosen"
        previous = manager.previous_checkpoint("a")
        assert previous
        assert previous.data == "newer", "evidence, for whoever wants it"
    assert (directory / "a.json").read_bytes() == chosen


def test_what_does_not_exist_has_no_plan(manager: LeaseManager) -> None:
    with pytest.raises(CheckpointNotFound):
        manager.plan_recovery("a")
    with pytest.raises(InvalidKey):
        manager.plan_recovery("")


def test_a_plan_takes_no_lock_and_another_manager_applies_it(real_directory: Path) -> None:
    owner = CheckpointManager(real_directory, LEASES)
    owner.create_checkpoint("a", NEW)
    good = (real_directory / "a.json").read_bytes()
    damage.flip_bit(real_directory, "a")
    with CheckpointManager(real_directory, LEASES, read_only=True) as reader:
        plan = reader.plan_recovery("a")
        assert plan.exact
        with pytest.raises(CheckpointWriteFailed, match="read_only"):
            plan.apply()
        with (
            CheckpointManager(real_directory.parent / "other", LEASES) as other,
            pytest.raises(ValueError, match="the plan is for"),
        ):
            plan.apply(manager=other)
        with owner:
            assert plan.apply(manager=owner).outcome is Outcome.REPAIRED
    assert (real_directory / "a.json").read_bytes() == good


def test_there_is_no_rollback_beyond_the_last_generation(manager: LeaseManager, directory: Path) -> None:
    manager.create_checkpoint("a", OLD)
    header, data = open_any((directory / "a.json").read_bytes())
    manager.close()
    (directory / "a.json").write_bytes(b"")
    (directory / ".previous-a").write_bytes(seal(header._replace(generation=MAX_GENERATION - 1), data))

    with CheckpointManager(directory, LEASES) as again:
        assert again.recover_checkpoint("a", rollback=True).outcome is Outcome.HOPELESS
        with pytest.raises(CheckpointWriteFailed, match="after which there is none"):
            again.plan_recovery("a").apply(discard=True)


# What has changed since the plan


SINCE: dict[str, Callable[[LeaseManager, Path], object]] = {
    "written anew": lambda manager, _: manager.create_checkpoint("a", Lease("third")),
    "removed": lambda manager, _: manager.remove_checkpoint("a"),
    "damaged more": lambda _, directory: damage.append(directory, "a", b"x"),
    "a folder": lambda _, directory: damage.replace_by_directory(directory, "a"),
}


@pytest.mark.parametrize("since", SINCE)
@pytest.mark.parametrize("harm", [damage.flip_bit, damage.ruin, damage.empty, lambda *_: None])
def test_a_file_that_has_changed_since_the_plan_is_left_alone(
    twice: LeaseManager, directory: Path, harm: Callable[[Path, str], object], since: str
) -> None:
    harm(directory, "a")
    plan = twice.plan_recovery("a")
    SINCE[since](twice, directory)
    before = names(directory)

    with pytest.raises(PlanOutdated, match="plan_recovery") as refused:
        plan.apply(rollback=True, discard=True)
    assert (refused.value.key, refused.value.path) == ("a", str(directory / "a.json"))
    assert names(directory) == before


@pytest.mark.parametrize("gone", [False, True])
def test_a_previous_generation_that_has_changed_since_the_plan_is_not_rolled_back_to(
    twice: LeaseManager, directory: Path, gone: bool
) -> None:
    damage.ruin(directory, "a")
    plan = twice.plan_recovery("a")
    (directory / ".previous-a").unlink() if gone else torn(directory)

    with pytest.raises(PlanOutdated):
        plan.apply(rollback=True)
    assert quarantined(directory) == []


def test_an_owner_that_applies_the_plan_of_a_reader_counts_on_from_it(real_directory: Path) -> None:
    with CheckpointManager(real_directory, LEASES) as owner:
        for lease in (OLD, NEW):
            owner.create_checkpoint("a", lease)
        damage.ruin(real_directory, "a")
        with CheckpointManager(real_directory, LEASES, read_only=True) as reader:
            plan = reader.plan_recovery("a")
        assert plan.apply(rollback=True, manager=owner).outcome is Outcome.ROLLED_BACK
        assert owner.create_checkpoint("a", Lease("node-c")).generation == owner.get_checkpoint("a").generation == 4
