"""What only the checkpointer on files promises: one owner, one file a claim, and nothing written for nothing."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from checkpointmanager import (
    BatchFailed,
    CheckpointManager,
    CheckpointTooNew,
    DirectoryLocked,
    FileStore,
    Schema,
)
from draState import CLAIMS, ClaimInfoState, Device, DriverState, FileCheckpointer, UnknownClaim

from ..checkpointmanager.damage import flip, ruin
from .claims import GPU, state_of

A, B, C = state_of("a", ["pod-1"], ["gpu-0"]), state_of("b", ["pod-1"]), state_of("c")
A_SHARED = state_of("a", ["pod-1", "pod-2"], ["gpu-0"])

Open = Callable[[], FileCheckpointer]


@pytest.fixture
def reopen(directory: Path) -> Iterator[Open]:
    """Opens the directory, and closes who had it before, as when an agent restarts."""
    opened: list[FileCheckpointer] = []

    def reopen() -> FileCheckpointer:
        if opened:
            opened.pop().close()
        opened.append(FileCheckpointer(directory))
        return opened[0]

    yield reopen
    for checkpointer in opened:
        checkpointer.close()


@pytest.fixture
def checkpointer(reopen: Open) -> FileCheckpointer:
    return reopen()


def generations(directory: Path) -> dict[str, int]:
    return {path.stem: json.loads(path.read_bytes())["generation"] for path in directory.glob("[a-z]*.json")}


def test_a_list_writes_only_what_changed(directory: Path, checkpointer: FileCheckpointer) -> None:
    checkpointer.store_list([A, B, C])
    written = {path.name: path.stat().st_ino for path in directory.glob("*.json")}

    checkpointer.store_list([A_SHARED, B, C])

    assert generations(directory) == {"a": 2, "b": 1, "c": 1}
    same = [name for name, inode in written.items() if (directory / name).stat().st_ino == inode]
    assert same == ["b.json", "c.json"]


def test_a_list_writes_nothing_after_a_restart_if_nothing_changed(directory: Path, reopen: Open) -> None:
    reopen().store_list([A, B])

    reopen().store_list([A, B])

    assert generations(directory) == {"a": 1, "b": 1}


def test_a_list_retries_what_failed(
    directory: Path, checkpointer: FileCheckpointer, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkpointer.store_list([A, B])
    with monkeypatch.context() as patch:
        patch.setattr("os.unlink", _refusing)
        with pytest.raises(BatchFailed) as failed:
            checkpointer.store_list([A])
    assert failed.value.failures.keys() == {"b"}

    checkpointer.store_list([A])

    assert generations(directory) == {"a": 1}


def test_a_list_deletes_what_it_could_not_write_before(
    directory: Path, checkpointer: FileCheckpointer, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkpointer.store_list([A, B])
    with monkeypatch.context() as patch:
        patch.setattr("os.fsync", _refusing)
        with pytest.raises(BatchFailed):
            checkpointer.store_list([A_SHARED, B])

    checkpointer.store_list([B])

    assert generations(directory) == {"b": 1}


def _refusing(*_: object, **__: object) -> None:
    raise OSError(5, "I/O error")


def test_a_claim_that_cannot_be_stored_costs_none_of_the_others(
    directory: Path, checkpointer: FileCheckpointer
) -> None:
    wrong = ClaimInfoState("b", "b", "default", driver_states={GPU: DriverState((Device("pool", 7),))})  # type: ignore[arg-type]

    with pytest.raises(BatchFailed) as failed:
        checkpointer.store([A, wrong, C])

    assert failed.value.failures.keys() == {"b"}
    assert generations(directory) == {"a": 1, "c": 1}


def _spoil(directory: Path, reopen: Open) -> dict[str, bytes]:
    """One claim of each sort that is unknown, and a good one."""
    checkpointer = reopen()
    checkpointer.store([A, state_of("damaged", ["pod-1"])])
    checkpointer.store(state_of("damaged", ["pod-1", "pod-2"]))
    checkpointer.close()
    ruin(directory / "damaged.json")
    with CheckpointManager(directory, Schema("ClaimInfo", version=9, type=ClaimInfoState)) as newer:
        newer.create_checkpoint("newer", state_of("newer"))
    with CheckpointManager(directory, CLAIMS) as manager:
        manager.create_checkpoint("stranger", state_of("somebody-else"))
    with CheckpointManager(directory, Schema("Lease")) as other:
        other.create_checkpoint("lease", {"holder": "x"})
    return {path.stem: path.read_bytes() for path in directory.glob("[a-z]*.json")}


def test_what_cannot_be_trusted_is_told_with_what_the_generation_before_said(directory: Path, reopen: Open) -> None:
    _spoil(directory, reopen)

    listed = reopen().get_or_create()

    unknown = {claim.uid: claim for claim in listed.unknown}
    assert list(listed) == [A]
    assert unknown.keys() == {"damaged", "newer", "stranger", "lease"}
    assert unknown["damaged"].previous == state_of("damaged", ["pod-1"])
    assert "checksum-mismatch" in unknown["damaged"].why
    assert unknown["newer"] == UnknownClaim("newer", unknown["newer"].why)
    assert "newer program" in unknown["newer"].why
    assert unknown["stranger"] == UnknownClaim("stranger", "the file holds the state of another claim")
    assert "kind 'Lease'" in unknown["lease"].why


@pytest.mark.parametrize("loaded", [True, False])
def test_a_list_never_touches_what_is_unknown(directory: Path, reopen: Open, loaded: bool) -> None:
    before = _spoil(directory, reopen)
    checkpointer = reopen()
    if loaded:
        checkpointer.get_or_create()
    with pytest.raises(CheckpointTooNew):
        checkpointer.store(state_of("newer", ["pod-1"]))

    checkpointer.store_list([B])
    checkpointer.store_list([])

    left = {path.stem: path.read_bytes() for path in directory.glob("[a-z]*.json")}
    assert left == {uid: blob for uid, blob in before.items() if uid != "a"}


def test_a_flipped_bit_is_repaired_when_it_is_read(directory: Path, checkpointer: FileCheckpointer) -> None:
    checkpointer.store(A)
    before = (directory / "a.json").read_bytes()
    flip(directory / "a.json")

    listed = checkpointer.get_or_create()

    assert list(listed) == [A]
    assert listed.unknown == ()
    assert (directory / "a.json").read_bytes() == before


def test_a_second_owner_is_refused_and_told_who_has_it(real_directory: Path) -> None:
    first = FileCheckpointer(real_directory, owner="dra-agent")

    with pytest.raises(DirectoryLocked, match="dra-agent"):
        FileCheckpointer(real_directory)

    first.close()
    FileCheckpointer(real_directory).close()


def test_a_directory_opened_for_sharing_is_refused(directory: Path) -> None:
    with pytest.raises(ValueError, match="of their own"):
        FileCheckpointer(directory, sharing=True)
    shared = FileStore(directory, sharing=True)
    with pytest.raises(ValueError, match="of their own"):
        FileCheckpointer(shared)
    shared.close()

    assert not list(directory.glob("*.json"))
