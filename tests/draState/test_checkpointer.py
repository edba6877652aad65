"""The contract that the cache stands on, for each that fulfils it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from checkpointmanager import MemoryStore
from draState import Checkpointer, ClaimInfoState, FileCheckpointer, MemoryCheckpointer

from .claims import state_of

A, B, C = state_of("a", ["pod-1"], ["gpu-0"]), state_of("b", ["pod-1"]), state_of("c")
A_SHARED = state_of("a", ["pod-1", "pod-2"], ["gpu-0"])

Open = Callable[[], Checkpointer]


@pytest.fixture(params=["files on pyfakefs", "files on disk", "a memory store", "memory"])
def reopen(request: pytest.FixtureRequest) -> Iterator[Open]:
    """Opens the same place again, as an agent does that restarts."""
    opened: list[Checkpointer] = []
    place: Path | MemoryStore | None = None
    if request.param == "a memory store":
        place = MemoryStore()
    elif request.param != "memory":
        place = request.getfixturevalue("directory" if "pyfakefs" in request.param else "real_directory")
    memory = MemoryCheckpointer()

    def reopen() -> Checkpointer:
        if opened:
            opened[-1].close()
        opened.append(memory if place is None else FileCheckpointer(place))
        return opened[-1]

    yield reopen
    opened[-1].close()


def kept(checkpointer: Checkpointer) -> dict[str, ClaimInfoState]:
    listed = checkpointer.get_or_create()
    assert listed.unknown == ()
    assert len(listed) == len(list(listed))
    return {claim.claim_uid: claim for claim in listed}


def test_a_new_place_is_empty(reopen: Open) -> None:
    assert kept(reopen()) == {}


@pytest.mark.parametrize("many", [[A], [A, B, C], []])
def test_what_was_stored_is_there_after_a_restart(reopen: Open, many: list[ClaimInfoState]) -> None:
    reopen().store(iter(many))

    assert kept(reopen()) == {claim.claim_uid: claim for claim in many}


def test_one_claim_is_stored_by_itself_and_replaced(reopen: Open) -> None:
    checkpointer = reopen()
    checkpointer.store(A)
    checkpointer.store(B)

    checkpointer.store(A_SHARED)

    assert kept(reopen()) == {"a": A_SHARED, "b": B}


def test_a_list_becomes_all_that_there_is(reopen: Open) -> None:
    reopen().store([A, B])

    reopen().store_list([A_SHARED, C])

    assert kept(reopen()) == {"a": A_SHARED, "c": C}


def test_a_list_works_as_in_kubelet(reopen: Open) -> None:
    checkpointer = reopen()
    claims = [*checkpointer.get_or_create(), A, B]
    checkpointer.store_list(claims)

    checkpointer = reopen()
    checkpointer.store_list(claim for claim in checkpointer.get_or_create() if claim.claim_uid != "a")

    assert kept(reopen()) == {"b": B}


@pytest.mark.parametrize("gone", [["a"], ["a", "b"], ["missing"], ["missing", "a"], []])
def test_what_was_deleted_is_gone_and_a_missing_one_is_no_error(reopen: Open, gone: list[str]) -> None:
    checkpointer = reopen()
    checkpointer.store([A, B, C])

    checkpointer.delete(*gone)

    assert kept(reopen()).keys() == {"a", "b", "c"} - set(gone)


def test_closing_twice_is_harmless(reopen: Open) -> None:
    checkpointer = reopen()

    checkpointer.close()
    checkpointer.close()
