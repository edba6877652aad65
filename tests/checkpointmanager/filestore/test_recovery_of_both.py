"""How an owner recovers a directory with spares and a transaction record, and what a reader sees before that."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from checkpointmanager import CheckpointManager, CorruptCheckpoint
from checkpointmanager._format.record import Member, MemberKind, Record, seal_record
from checkpointmanager.testing import dying

from ...long import LONG
from ..contents import names
from ..spares import Manager, previous_of
from .test_recovery_at_open import blob_of, left

GONE, DAMAGED = "(gone)", "(damaged)"
ROT = b"rot"
FILE = ".tmp-0-1"  # with the new checkpoint of "a"


class Case(NamedTuple):
    """Generations of key "a": under its names (-1: damaged, 0: absent), in spares, and in the record."""

    current: int
    spares: tuple[int, ...]
    kind: MemberKind
    member: int
    has_file: bool
    then: object  # what holds in the end: a generation, or one of the words above
    previous: int | None


PUT, CREATE, REMOVE = MemberKind
CASES = {
    "an update from before the transaction is the generation before": Case(4, (5, 3), PUT, 6, True, 6, 5),
    "an update from after it wins": Case(6, (7, 5), PUT, 6, False, 7, 6),
    "a member that is made already": Case(6, (5, 3), PUT, 6, False, 6, 3),
    "a removal wins over an older update": Case(4, (5, 3), REMOVE, 6, False, GONE, None),
    "a removal that is made already": Case(0, (5, 3), REMOVE, 6, False, GONE, None),
    "created again after the removal": Case(7, (5, 3), REMOVE, 6, False, 7, 3),
    "created again and updated": Case(7, (8, 5), REMOVE, 6, False, 8, 7),
    "a creation beside stale spares": Case(0, (5, 3), CREATE, 6, True, 6, None),
    "a creation that was made already": Case(6, (5, 3), CREATE, 6, False, 6, None),
    "a creation that was made, and updated": Case(6, (7, 5), CREATE, 6, False, 7, 6),
    "removed by hand": Case(0, (5, 3), PUT, 6, True, GONE, None),
    "damaged before the transaction": Case(-1, (5, 3), PUT, 6, True, 6, 5),
    "damaged after it": Case(-1, (7, 5), PUT, 6, False, DAMAGED, 7),
    "damaged after it, without an update": Case(-1, (5, 2), PUT, 6, False, DAMAGED, 5),
    "damaged, and removed": Case(-1, (5, 3), REMOVE, 6, False, GONE, None),
}


def made(directory: Path, case: Case) -> None:
    """As a dead owner left it. Key "b" is a member too; "c" is not, and has a spare."""
    directory.mkdir(mode=0o700)
    left(directory, ".spares", b"spares\n")
    if case.current:
        left(directory, "a.json", ROT if case.current < 0 else blob_of("a", case.current, str(case.current)))
        left(directory, ".previous-a", blob_of("a", 3, "3"))
    for generation in case.spares:
        left(directory, f".spare-{generation}", blob_of("a", generation, str(generation)))
    if case.has_file:
        left(directory, FILE, blob_of("a", case.member, str(case.member)))
    left(directory, "b.json", blob_of("b", 1, "1") if case.has_file else blob_of("b", 2, "2"))
    if case.has_file:
        left(directory, ".tmp-0-2", blob_of("b", 2, "2"))
    left(directory, "c.json", blob_of("c", 1, "1"))
    left(directory, ".spare-c", blob_of("c", 2, "2"))
    first = Member("a", case.kind, case.member, "" if case.kind is REMOVE else FILE)
    left(directory, ".transaction", seal_record(Record(1, (first, Member("b", PUT, 2, ".tmp-0-2")))))


def found(manager: Manager) -> Mapping[str, object]:
    def value(key: str) -> object:
        if key not in manager:
            return GONE
        try:
            return int(manager.get_checkpoint(key).data)
        except CorruptCheckpoint:
            return DAMAGED

    previous = previous_of(manager)
    return {key: value(key) for key in "abc"} | {"previous": previous and int(str(previous))}


def expected(case: Case) -> Mapping[str, object]:
    return {"a": case.then, "b": 2, "c": 2, "previous": case.previous}


pytestmark = pytest.mark.usefixtures("kit_standing_by", "no_waiting_for_the_disk")
KILLED = list(CASES) if LONG else list(CASES)[:2] + list(CASES)[3::4]
by_case = pytest.mark.parametrize("case", CASES.values(), ids=CASES)


@by_case
@pytest.mark.parametrize("options", [{}, {"sharing": True}, {"durability": "atomic"}], ids=str)
def test_the_highest_generation_counts_for_readers_and_for_the_owner(
    tmp_path: Path, case: Case, options: dict[str, Any]
) -> None:
    directory = tmp_path / "claims"
    made(directory, case)
    with CheckpointManager[Any](directory, read_only=True) as reader:
        assert found(reader) == expected(case)
    with CheckpointManager[Any](directory, **options) as manager:
        assert found(manager) == expected(case)
        assert names(directory, ".spare") == names(directory, ".t") == []
        if case.current < 0 and case.then != DAMAGED:
            assert [kept.read_bytes() for kept in (directory / ".quarantine").iterdir()] == [ROT]


@pytest.mark.parametrize("case", [CASES[name] for name in KILLED], ids=KILLED)
def test_recovery_that_is_killed_at_any_call_is_finished_by_the_next(tmp_path: Path, case: Case) -> None:
    for nth in itertools.count(1):
        directory = tmp_path / f"claims-{nth}"
        made(directory, case)
        with dying(directory, nth=nth) as injector:
            CheckpointManager[Any](directory)
        injector.clear_the_grave()
        with CheckpointManager[Any](directory, read_only=True) as reader:
            assert found(reader) == expected(case)
        with CheckpointManager[Any](directory) as manager:
            assert found(manager) == expected(case)
            assert names(directory, ".spare") == names(directory, ".t") == []
        if not injector.dead:
            break
    assert nth > 20


@by_case
def test_a_sharer_that_was_open_before_recovers_both_when_it_writes(tmp_path: Path, case: Case) -> None:
    directory = tmp_path / "claims"
    with CheckpointManager[Any](directory, sharing=True) as sharer:
        made_before = tmp_path / "made"
        made(made_before, case)
        for file in made_before.iterdir():
            file.rename(directory / file.name)
        sharer.create_checkpoint("d", "1")
        assert found(sharer) == expected(case)
        assert names(directory, ".spare") == names(directory, ".t") == []
