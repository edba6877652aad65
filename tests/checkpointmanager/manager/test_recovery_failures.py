"""A store that fails during a recovery: nothing is replaced that may be whole, or whose bytes could not be kept."""

from __future__ import annotations

import errno
from collections.abc import Mapping, Sequence

import pytest

from checkpointmanager import (
    CheckpointManager,
    CheckpointNotFound,
    CheckpointWriteFailed,
    CorruptCheckpoint,
    MemoryStore,
    Outcome,
    PlanOutdated,
    Put,
    Reason,
    Remove,
)
from checkpointmanager.format import Damaged
from checkpointmanager.testing import damage

from ..leases import LEASES, NEW, OLD, LeaseManager

Answer = bytes | Exception

SHORTAGE = Damaged(Reason.UNREADABLE, "Too many open files", errno=errno.EMFILE)
BAD_BLOCK = Damaged(Reason.UNREADABLE, "Input/output error", errno=errno.EIO)
FULL = OSError(errno.ENOSPC, "No space left on device")


class Failing(MemoryStore):
    """Gives one answer per read of the current generation, then the truth. May fail to keep, to write, or to read."""

    def __init__(self) -> None:
        super().__init__()
        self.answers: list[Answer] = []
        self.previous_fails: Damaged | None = None
        self.full = ""
        self.reads = 0
        self.fails_from = 10**9

    def read(self, key: str, *, previous: bool = False) -> bytes:
        self.reads += 1
        answer: Answer | None = BAD_BLOCK if self.reads >= self.fails_from else self.previous_fails
        if not previous and self.answers:
            answer = self.answers.pop(0)
        if isinstance(answer, Exception) and (previous or answer is not self.previous_fails):
            raise answer
        return answer if isinstance(answer, bytes) else super().read(key, previous=previous)

    def quarantine(self, key: str, reason: str) -> str:
        if self.full == "quarantine":
            raise FULL
        return super().quarantine(key, reason)

    def commit(self, changes: Sequence[Put | Remove], *, together: bool = False) -> Mapping[str, CheckpointWriteFailed]:
        if self.full != "commit":
            return super().commit(changes, together=together)
        return {key: CheckpointWriteFailed(key, self.path, FULL, in_doubt=False) for key, *_ in changes}


@pytest.fixture
def store() -> Failing:
    store = Failing()
    with CheckpointManager(store, LEASES) as manager:
        manager.create_checkpoint("a", OLD)
        manager.create_checkpoint("a", NEW)
    return store


@pytest.fixture
def manager(store: Failing) -> LeaseManager:
    return CheckpointManager(store, LEASES)


@pytest.mark.parametrize("full", ["quarantine", "commit"])
@pytest.mark.parametrize("remedy", ["exact", "rollback", "discard"])
def test_what_cannot_be_kept_or_replaced_stays(store: Failing, manager: LeaseManager, full: str, remedy: str) -> None:
    damage.flip_bit(store, "a") if remedy == "exact" else damage.ruin(store, "a")
    if remedy == "discard":
        del store.previous["a"]
    before = store.current["a"]
    plan = manager.plan_recovery("a")
    store.full = full

    with pytest.raises(CheckpointWriteFailed, match="No space left"):
        plan.apply(rollback=remedy == "rollback", discard=remedy == "discard")
    loaded = manager.load(repair=True)

    assert isinstance(loaded.problems["a"], CorruptCheckpoint)
    assert (loaded.recoveries, store.current["a"]) == ({}, before)


@pytest.mark.parametrize("seen", [BAD_BLOCK, b"damaged"], ids=["bad block", "damaged"])
@pytest.mark.parametrize("looks", [1, 2])
def test_a_disk_that_fails_to_read_a_good_file_costs_no_generation(
    store: Failing, manager: LeaseManager, looks: int, seen: Answer
) -> None:
    """Whatever the plan saw, a file that is whole when the plan is applied is never replaced."""
    store.answers = [seen] * looks

    plan = manager.plan_recovery("a")
    if looks == 1:
        assert plan.outcome is Outcome.INTACT
    else:
        with pytest.raises(PlanOutdated):
            plan.apply(rollback=True, discard=True)
    assert manager.get_checkpoint("a").data == NEW


SHORTAGES: dict[str, tuple[list[Answer], Damaged | None]] = {
    "at both looks": ([SHORTAGE] * 2, None),
    "at the second look": ([b"damaged", SHORTAGE], None),
    "at the previous generation": ([b"damaged"] * 2, SHORTAGE),
}


@pytest.mark.parametrize("when", SHORTAGES)
def test_a_shortage_of_descriptors_is_no_damage_and_causes_no_rollback(
    store: Failing, manager: LeaseManager, when: str
) -> None:
    store.answers, store.previous_fails = list(SHORTAGES[when][0]), SHORTAGES[when][1]

    with pytest.raises(CheckpointWriteFailed, match="Too many open files"):
        manager.recover_checkpoint("a", rollback=True)
    assert manager.get_checkpoint("a").data == NEW


def test_a_shortage_while_a_plan_is_applied_does_not_outdate_it(store: Failing, manager: LeaseManager) -> None:
    store.current["a"] += b"x"
    plan = manager.plan_recovery("a")
    store.answers = [SHORTAGE]

    with pytest.raises(CheckpointWriteFailed, match="Too many open files"):
        plan.apply()
    assert plan.apply().outcome is Outcome.REPAIRED


# load(repair=True) never raises


def test_a_disk_that_fails_to_read_at_any_moment_of_a_load_raises_nothing(store: Failing) -> None:
    damage.flip_bit(store, "a")
    damaged = store.current["a"]
    for fails_from in range(1, 20):
        store.current["a"], store.reads, store.fails_from = damaged, 0, fails_from

        loaded = CheckpointManager(store, LEASES).load(repair=True)

        assert loaded.checkpoints.keys() ^ loaded.problems.keys() == {"a"}
        assert loaded.recoveries.keys() == loaded.checkpoints.keys()
        if store.reads < fails_from:
            assert loaded.checkpoints["a"].data == NEW, "all reads of a repair went well"
            return
    pytest.fail("the faults never ended")


def test_a_file_that_is_whole_when_it_is_to_be_repaired_is_no_recovery(store: Failing, manager: LeaseManager) -> None:
    store.answers = [b"damaged"] * 2

    loaded = manager.load(repair=True)

    assert loaded.checkpoints["a"].data == NEW
    assert (loaded.problems, loaded.recoveries) == ({}, {})


def test_a_checkpoint_removed_before_it_could_be_repaired_is_left_out(store: Failing, manager: LeaseManager) -> None:
    flipped = bytearray(store.current["a"])
    flipped[-20] ^= 1
    store.answers = [bytes(flipped)] * 2 + [CheckpointNotFound("a", store.path_of("a"))] * 3

    loaded = manager.load(repair=True)

    assert (loaded.checkpoints, loaded.problems, loaded.recoveries) == ({}, {}, {})
