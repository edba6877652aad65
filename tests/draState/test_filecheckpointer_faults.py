"""The checkpointer on a disk that fails: it never takes for written what may not be, and always starts."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from checkpointmanager import BatchFailed, CheckpointManager, CheckpointWriteFailed, Event, EventKind
from draState import CLAIMS, ClaimInfoState, FileCheckpointer, UnknownClaim

from ..checkpointmanager.damage import flip, ruin
from .claims import state_of
from .failing_disk import failing, full, io_error, unsynced

A, A_SHARED, B = state_of("a", ["pod-1"]), state_of("a", ["pod-1", "pod-2"]), state_of("b")


@pytest.fixture
def checkpointer(real_directory: Path) -> Iterator[FileCheckpointer]:
    checkpointer = FileCheckpointer(real_directory)
    checkpointer.store_list([A, B])
    yield checkpointer
    checkpointer.close()


def restarted(checkpointer: FileCheckpointer, directory: Path) -> list[ClaimInfoState]:
    checkpointer.close()
    again = FileCheckpointer(directory)
    try:
        return sorted(again.get_or_create(), key=lambda claim: claim.claim_uid)
    finally:
        again.close()


@pytest.mark.parametrize(
    "change",
    [
        lambda checkpointer: checkpointer.store(A_SHARED),
        lambda checkpointer: checkpointer.store([A_SHARED]),
        lambda checkpointer: checkpointer.store_list([A_SHARED, B]),
        lambda checkpointer: checkpointer.delete("a"),
        lambda checkpointer: checkpointer.store_list([B]),
    ],
    ids=["store", "store several", "store a list", "delete", "delete by a list"],
)
def test_what_is_in_doubt_is_not_taken_for_what_it_was(
    change: Callable[[FileCheckpointer], None], checkpointer: FileCheckpointer, real_directory: Path
) -> None:
    with unsynced(), pytest.raises((CheckpointWriteFailed, BatchFailed)):
        change(checkpointer)  # the names are changed, and nobody says so

    checkpointer.store_list([A, B])

    assert restarted(checkpointer, real_directory) == [A, B]


@pytest.mark.parametrize("change", [A_SHARED, [A_SHARED]], ids=["store", "store several"])
def test_what_is_in_doubt_is_not_taken_for_what_it_should_be_either(
    change: ClaimInfoState | list[ClaimInfoState], checkpointer: FileCheckpointer, real_directory: Path
) -> None:
    with unsynced(), pytest.raises((CheckpointWriteFailed, BatchFailed)):
        checkpointer.store(change)
    before = (real_directory / "a.json").read_bytes()

    checkpointer.store_list([A_SHARED, B])

    assert (real_directory / "a.json").read_bytes() != before


def test_a_list_that_changes_nothing_touches_no_file(checkpointer: FileCheckpointer) -> None:
    checkpointer.get_or_create()
    checkpointer.store(A_SHARED)
    checkpointer.delete("b")

    with failing("open", io_error), failing("unlink", io_error), failing("fsync", io_error):
        checkpointer.store_list([A_SHARED])


def test_one_error_tells_of_what_cannot_be_stored_and_of_what_the_disk_refused(checkpointer: FileCheckpointer) -> None:
    wrong = ClaimInfoState("wrong", 7, "default")  # type: ignore[arg-type]

    with full(), pytest.raises(BatchFailed) as failed:
        checkpointer.store([wrong, A_SHARED])

    assert failed.value.failures.keys() == {"wrong", "a"}


def test_damage_that_cannot_be_repaired_on_a_full_disk_does_not_keep_it_from_starting(
    checkpointer: FileCheckpointer, real_directory: Path
) -> None:
    checkpointer.store(A_SHARED)
    checkpointer.close()
    flip(real_directory / "a.json")
    events: list[Event] = []
    again = FileCheckpointer(real_directory, on_event=events.append)

    with full():
        listed = again.get_or_create()

    assert list(listed) == [B]
    assert [(claim.uid, claim.previous) for claim in listed.unknown] == [("a", A)]
    assert EventKind.DAMAGE in {event.kind for event in events}
    again.close()
    assert restarted(again, real_directory) == [A_SHARED, B]


def test_a_claim_that_could_not_be_read_for_a_moment_is_none_the_worse(checkpointer: FileCheckpointer) -> None:
    trouble = iter([True, True])  # readers look twice

    with failing("read", io_error, lambda _: next(trouble, False)):
        listed = checkpointer.get_or_create()

    assert len(listed) == 2
    assert listed.unknown == ()


def test_a_generation_before_that_is_another_claims_says_nothing(
    checkpointer: FileCheckpointer, real_directory: Path
) -> None:
    checkpointer.close()
    with CheckpointManager(real_directory, CLAIMS) as manager:
        manager.create_checkpoint("c", state_of("stranger", ["pod-9"]))
        manager.create_checkpoint("c", state_of("c"))
    ruin(real_directory / "c.json")
    again = FileCheckpointer(real_directory)

    (unknown,) = again.get_or_create().unknown

    assert unknown == UnknownClaim("c", unknown.why)
    again.close()
