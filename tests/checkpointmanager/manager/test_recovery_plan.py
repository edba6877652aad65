"""plan_recovery says what could be done and at what cost, and touches nothing; apply does exactly that, or refuses."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pytest

from checkpointmanager import (
    CheckpointManager,
    CheckpointNotFound,
    CheckpointTooNew,
    CheckpointWriteFailed,
    Event,
    EventKind,
    InvalidKey,
    MemoryStore,
    Outcome,
    PlanOutdated,
    Reason,
    Schema,
    WrongKind,
)
from checkpointmanager.format import MAX_GENERATION, Damaged, open_any, seal
from checkpointmanager.format import _repair as repair
from checkpointmanager.testing import damage

from ..contents import names, quarantined
from ..leases import LEASES, NEW, OLD, Lease, LeaseManager


def everything(directory: Path) -> dict[str, tuple[bytes, int]]:
    return {path.name: (path.read_bytes(), path.stat().st_ino) for path in directory.iterdir() if path.is_file()}


def test_a_whole_checkpoint_needs_nothing(manager: LeaseManager, directory: Path, events: list[Event]) -> None:
    manager.create_checkpoint("a", OLD)
    before = everything(directory)

    plan = manager.plan_recovery("a")

    assert (plan.key, plan.path) == ("a", str(directory / "a.json"))
    assert (plan.outcome, plan.exact, plan.lost, plan.rollback_to) == (Outcome.INTACT, False, "nothing", 0)
    assert (plan.reason, plan.damage) == (None, "")
    assert plan.apply(rollback=True, discard=True).outcome is Outcome.INTACT
    assert everything(directory) == before
    assert events == []


def test_an_exact_repair_loses_nothing(manager: LeaseManager, directory: Path, events: list[Event]) -> None:
    manager.create_checkpoint("a", OLD)
    good = (directory / "a.json").read_bytes()
    damage.flip_bit(directory, "a")
    damaged = (directory / "a.json").read_bytes()
    before = everything(directory)

    plan = manager.plan_recovery("a")

    assert (plan.outcome, plan.exact, plan.lost, plan.rollback_to) == (Outcome.REPAIRED, True, "nothing", 0)
    assert plan.reason is Reason.CHECKSUM_MISMATCH
    assert plan.damage.startswith("the file says xxh3:")
    assert "bit 3 of byte" in plan.detail
    assert everything(directory) == before
    assert [event.kind for event in events] == [EventKind.DAMAGE]

    recovery = plan.apply()

    assert (recovery.outcome, recovery.detail) == (Outcome.REPAIRED, plan.detail)
    assert (directory / "a.json").read_bytes() == good
    assert quarantined(directory) == [damaged]
    assert [event.kind for event in events] == [EventKind.DAMAGE, EventKind.QUARANTINED, EventKind.RECOVERED]


def test_a_rollback_says_what_it_costs_and_needs_consent(manager: LeaseManager, directory: Path) -> None:
    manager.create_checkpoint("a", OLD)
    manager.create_checkpoint("a", NEW)
    damage.ruin(directory, "a")
    before = everything(directory)

    plan = manager.plan_recovery("a")

    assert (plan.outcome, plan.exact, plan.rollback_to) == (Outcome.NEEDS_ROLLBACK, False, 1)
    assert plan.lost == "what was written after generation 1"
    without_consent = plan.apply(discard=True)
    assert (without_consent.outcome, without_consent.rollback_to) == (Outcome.NEEDS_ROLLBACK, 1)
    assert everything(directory) == before

    assert plan.apply(rollback=True).outcome is Outcome.ROLLED_BACK
    found = manager.get_checkpoint("a")
    assert (found.data, found.generation) == (OLD, 3)


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


class CannotKeep(MemoryStore):
    def quarantine(self, key: str, reason: str) -> str:
        raise OSError(errno.ENOSPC, "No space left on device")


def test_what_cannot_be_kept_is_not_discarded() -> None:
    store = CannotKeep()
    store.current["a"] = b"ruined"
    plan = CheckpointManager(store, LEASES).plan_recovery("a")

    with pytest.raises(CheckpointWriteFailed, match="No space left"):
        plan.apply(discard=True)
    assert store.current["a"] == b"ruined"


def test_a_missing_checkpoint_has_no_plan(manager: LeaseManager) -> None:
    with pytest.raises(CheckpointNotFound):
        manager.plan_recovery("a")
    with pytest.raises(InvalidKey):
        manager.plan_recovery("")


@pytest.mark.parametrize(
    ("schema", "error"),
    [(Schema("Lease", version=2, type=Lease), CheckpointTooNew), (Schema("Other", type=Lease), WrongKind)],
)
def test_another_programs_checkpoint_has_no_plan(
    directory: Path, schema: Schema[Lease], error: type[Exception]
) -> None:
    with CheckpointManager(directory, schema) as theirs:
        theirs.create_checkpoint("a", OLD)
    with CheckpointManager(directory, LEASES) as manager, pytest.raises(error):
        manager.plan_recovery("a")


def test_a_plan_takes_no_lock_and_another_manager_applies_it(real_directory: Path) -> None:
    with (
        CheckpointManager(real_directory, LEASES) as owner,
        CheckpointManager(real_directory, LEASES, read_only=True) as reader,
    ):
        owner.create_checkpoint("a", OLD)
        good = (real_directory / "a.json").read_bytes()
        damage.flip_bit(real_directory, "a")

        plan = reader.plan_recovery("a")
        assert plan.exact
        with pytest.raises(CheckpointWriteFailed, match="read_only"):
            plan.apply()
        assert plan.apply(manager=owner).outcome is Outcome.REPAIRED
    assert (real_directory / "a.json").read_bytes() == good


def test_what_is_no_file_is_not_discarded(manager: LeaseManager, directory: Path) -> None:
    (directory / "a.json").mkdir()
    plan = manager.plan_recovery("a")
    assert plan.outcome is Outcome.HOPELESS

    with pytest.raises(CheckpointWriteFailed, match="move it away") as refused:
        plan.apply(discard=True)

    assert not refused.value.in_doubt
    assert (directory / "a.json").is_dir()


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


def test_a_plan_is_not_applied_to_another_directory(manager: LeaseManager, directory: Path) -> None:
    manager.create_checkpoint("a", OLD)
    plan = manager.plan_recovery("a")
    with (
        CheckpointManager(directory.parent / "other", LEASES) as other,
        pytest.raises(ValueError, match="the plan is for"),
    ):
        plan.apply(manager=other)


def write_anew(manager: LeaseManager, directory: Path) -> None:
    manager.create_checkpoint("a", NEW)


def damage_more(manager: LeaseManager, directory: Path) -> None:
    (directory / "a.json").write_bytes((directory / "a.json").read_bytes() + b"x")


def remove(manager: LeaseManager, directory: Path) -> None:
    manager.remove_checkpoint("a")


def put_a_folder_there(manager: LeaseManager, directory: Path) -> None:
    (directory / "a.json").unlink()
    (directory / "a.json").mkdir()


@pytest.mark.parametrize("change", [write_anew, damage_more, remove, put_a_folder_there])
@pytest.mark.parametrize("harm", [damage.flip_bit, damage.ruin, damage.empty, lambda *_: None])
def test_a_file_that_has_changed_since_the_plan_is_left_alone(
    manager: LeaseManager, directory: Path, harm: Any, change: Any
) -> None:
    manager.create_checkpoint("a", OLD)
    harm(directory, "a")
    plan = manager.plan_recovery("a")
    change(manager, directory)
    before = names(directory)

    with pytest.raises(PlanOutdated, match="plan_recovery") as refused:
        plan.apply(rollback=True, discard=True)
    assert refused.value.key == "a"
    assert refused.value.path == str(directory / "a.json")
    assert names(directory) == before


def test_a_previous_generation_that_has_changed_since_the_plan_is_not_rolled_back_to(
    manager: LeaseManager, directory: Path
) -> None:
    for key in "ab":
        manager.create_checkpoint(key, OLD)
        manager.create_checkpoint(key, NEW)
        damage.ruin(directory, key)
    changed, gone = manager.plan_recovery("a"), manager.plan_recovery("b")
    damage.ruin(directory, "a", previous=True)
    (directory / ".previous-b").unlink()

    for plan in (changed, gone):
        with pytest.raises(PlanOutdated):
            plan.apply(rollback=True)
    assert quarantined(directory) == []


def test_a_plan_is_applied_once(manager: LeaseManager, directory: Path) -> None:
    manager.create_checkpoint("a", OLD)
    damage.flip_bit(directory, "a")
    plan = manager.plan_recovery("a")
    plan.apply()
    with pytest.raises(PlanOutdated):
        plan.apply()


def test_the_search_for_a_bit_runs_once(
    manager: LeaseManager, directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    manager.create_checkpoint("a", OLD)
    damage.flip_bit(directory, "a")
    searches: list[int] = []
    search = repair._with_bit_flipped

    def counted(blob: bytes, budget: repair.SearchBudget | None) -> repair.Repair | None:
        searches.append(len(blob))
        return search(blob, budget)

    monkeypatch.setattr(repair, "_with_bit_flipped", counted)
    plan = manager.plan_recovery("a")
    assert len(searches) == 1
    plan.apply()
    assert len(searches) == 1
    damage.flip_bit(directory, "a")
    manager.recover_checkpoint("a")
    assert len(searches) == 2


class Sight(MemoryStore):
    """Gives one answer per read, then the truth."""

    answers: list[bytes | Damaged]

    def read(self, key: str, *, previous: bool = False) -> bytes:
        if not previous and self.answers:
            answer = self.answers.pop(0)
            if isinstance(answer, Damaged):
                raise answer
            return answer
        return super().read(key, previous=previous)


@pytest.mark.parametrize("looks", [1, 2])
def test_a_disk_that_fails_to_read_a_good_file_costs_no_generation(looks: int) -> None:
    """Whatever the plan saw, a file that is whole when the plan is applied is never replaced."""
    store = Sight()
    store.answers = []
    manager = CheckpointManager(store, LEASES)
    manager.create_checkpoint("a", OLD)
    manager.create_checkpoint("a", NEW)
    store.answers = [Damaged(Reason.UNREADABLE, "Input/output error", errno=errno.EIO)] * looks

    plan = manager.plan_recovery("a")
    if looks == 1:
        assert plan.outcome is Outcome.INTACT
    else:
        with pytest.raises(PlanOutdated):
            plan.apply(rollback=True, discard=True)
    assert manager.get_checkpoint("a").data == NEW


def test_a_shortage_while_the_previous_generation_is_read_is_not_hopeless(
    manager: LeaseManager, directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    manager.create_checkpoint("a", OLD)
    manager.create_checkpoint("a", NEW)
    damage.ruin(directory, "a")
    read = manager._store.read

    def reads(key: str, *, previous: bool = False) -> bytes:
        if previous:
            raise Damaged(Reason.UNREADABLE, "Too many open files", errno=errno.EMFILE)
        return read(key, previous=previous)

    monkeypatch.setattr(manager._store, "read", reads)
    with pytest.raises(CheckpointWriteFailed, match="Too many open files"):
        manager.plan_recovery("a")


def test_a_shortage_while_a_plan_is_applied_does_not_outdate_it() -> None:
    store = Sight()
    store.answers = []
    manager = CheckpointManager(store, LEASES)
    manager.create_checkpoint("a", OLD)
    store.current["a"] += b"x"
    plan = manager.plan_recovery("a")
    store.answers = [Damaged(Reason.UNREADABLE, "Too many open files", errno=errno.EMFILE)]

    with pytest.raises(CheckpointWriteFailed, match="Too many open files"):
        plan.apply()
    assert plan.apply().outcome is Outcome.REPAIRED


def test_no_plan_shows_data(manager: LeaseManager, directory: Path) -> None:
    manager.create_checkpoint("a", Lease("s3cret"))
    manager.create_checkpoint("a", Lease("s3cret-too"))
    damage.ruin(directory, "a")
    assert "s3cret" not in repr(manager.plan_recovery("a"))
    assert os.fspath(directory) in repr(manager.plan_recovery("a"))
