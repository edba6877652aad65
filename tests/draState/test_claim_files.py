"""What the files of claims promise: one per claim, no needless writes, and a start whatever they contain."""

from __future__ import annotations

import errno
import json
from pathlib import Path

import pytest

from checkpointmanager import (
    BatchFailed,
    CheckpointManager,
    CheckpointTooNew,
    DirectoryLocked,
    Event,
    EventKind,
    FileStore,
    Schema,
    TransactionFailed,
)
from checkpointmanager.testing import damage, failing
from draState import CLAIMS, ClaimInfo, ClaimInfoCache, ClaimInfoState, Device, DriverState

from .claims import GPU, info_of, state_of
from .failing_disk import full

# A device's name is text.
UNSTORABLE = ClaimInfoState("wrong", "w", "ml", driver_states={GPU: DriverState((Device("pool", 7),))})  # type: ignore[arg-type]


def kept(cache: ClaimInfoCache) -> dict[str, ClaimInfoState]:
    assert not cache.report().degraded
    return {claim.uid: claim.state for claim in cache}


def generations(directory: Path) -> dict[str, int]:
    return {path.stem: json.loads(path.read_bytes())["generation"] for path in directory.glob("[a-z]*.json")}


def test_a_claim_that_cannot_be_stored_keeps_the_others_back(directory: Path) -> None:
    cache = ClaimInfoCache(directory)

    with pytest.raises(TransactionFailed) as failed:
        cache.put(info_of("a"), ClaimInfo(UNSTORABLE), info_of("c"))

    cache.close()
    assert failed.value.key == "wrong"
    assert generations(directory) == {}
    assert len(cache) == 0


def test_a_claim_that_cannot_be_stored_costs_none_that_are_independent(directory: Path) -> None:
    cache = ClaimInfoCache(directory)
    claims = [info_of("a"), ClaimInfo(UNSTORABLE), info_of("c")]

    with pytest.raises(BatchFailed) as failed:
        cache.change(["a", "wrong", "c"], lambda _: claims, independent=True)

    cache.close()
    assert failed.value.failures.keys() == {"wrong"}
    assert generations(directory) == {"a": 1, "c": 1}
    assert {claim.uid for claim in cache} == {"a", "c"}


def test_one_error_names_what_cannot_be_stored_and_what_the_disk_refused(real_directory: Path) -> None:
    cache = ClaimInfoCache(real_directory)
    claims = [ClaimInfo(UNSTORABLE), info_of("a")]

    with full(real_directory), pytest.raises(BatchFailed) as failed:
        cache.change(["wrong", "a"], lambda _: claims, independent=True)

    cache.close()
    assert failed.value.failures.keys() == {"wrong", "a"}
    assert len(cache) == 0


def spoil(directory: Path) -> None:
    """One unknown claim of each sort, and a good one."""
    with CheckpointManager(directory, CLAIMS) as manager:
        manager.create_checkpoint("a", state_of("a", ["pod-1"], ["gpu-0"]))
        manager.create_checkpoint("damaged", state_of("damaged", ["pod-1"]))
        manager.create_checkpoint("damaged", state_of("damaged", ["pod-1", "pod-2"]))
        manager.create_checkpoint("stranger", state_of("stranger", ["pod-3"]))
        manager.create_checkpoint("stranger", state_of("somebody-else"))
        manager.create_checkpoint("confused", state_of("somebody-else", ["pod-9"]))
        manager.create_checkpoint("confused", state_of("confused", ["pod-9"]))
    damage.truncate(directory, "damaged")
    damage.truncate(directory, "confused")
    with CheckpointManager(directory, Schema("ClaimInfo", version=9, type=ClaimInfoState)) as newer:
        newer.create_checkpoint("newer", state_of("newer"))
    with CheckpointManager(directory, Schema("Lease")) as other:
        other.create_checkpoint("lease", {"holder": "x"})
    with CheckpointManager(directory, Schema(CLAIMS.kind, CLAIMS.version)) as program:
        program.create_checkpoint("misfit", {"driver_states": "none"})


def test_what_cannot_be_trusted_is_unknown_with_the_content_of_its_previous_generation(directory: Path) -> None:
    spoil(directory)

    cache = ClaimInfoCache(directory)

    unknown = cache.report().unknown
    cache.close()
    assert unknown.keys() == {"damaged", "newer", "stranger", "lease", "confused", "misfit"}
    assert "the file is whole" in unknown["misfit"]
    assert "truncated" in unknown["damaged"]
    assert "newer program" in unknown["newer"]
    assert unknown["stranger"] == "the file holds the state of another claim"
    assert "kind 'Lease'" in unknown["lease"]
    states = {claim.uid: claim.state for claim in cache}
    assert states["a"] == state_of("a", ["pod-1"], ["gpu-0"])
    assert states["damaged"] == state_of("damaged", ["pod-1"])
    assert states["stranger"] == state_of("stranger", ["pod-3"])
    for uid in ("newer", "lease", "confused", "misfit"):
        assert states[uid] == ClaimInfoState(uid, "", ""), "another claim's content says nothing about this one"


def test_what_is_unknown_is_not_touched_by_a_change_of_others(directory: Path) -> None:
    spoil(directory)
    before = {path.stem: path.read_bytes() for path in directory.glob("[a-z]*.json") if path.stem != "a"}
    cache = ClaimInfoCache(directory)
    with pytest.raises(CheckpointTooNew):
        cache.put(info_of("newer", ["pod-1"]))

    cache.put(info_of("b"))
    cache.delete("a", "b")

    cache.close()
    assert {path.stem: path.read_bytes() for path in directory.glob("[a-z]*.json")} == before


def test_damage_that_cannot_be_repaired_on_a_full_disk_does_not_keep_it_from_starting(real_directory: Path) -> None:
    cache = ClaimInfoCache(real_directory)
    cache.put(info_of("a", ["pod-1"]), info_of("b"))
    cache.put(info_of("a", ["pod-1", "pod-2"]))
    cache.close()
    damage.flip_bit(real_directory, "a")
    events: list[Event] = []

    with full(real_directory):
        cache = ClaimInfoCache(real_directory, on_event=events.append)
    cache.close()

    assert cache.report().unknown.keys() == {"a"}
    assert {claim.uid: claim.state for claim in cache} == {"a": state_of("a", ["pod-1"]), "b": state_of("b")}
    assert [event.kind for event in events if event.key == "a"] == [EventKind.DAMAGE, EventKind.QUARANTINED]
    again = ClaimInfoCache(real_directory)
    again.close()
    assert kept(again) == {"a": state_of("a", ["pod-1", "pod-2"]), "b": state_of("b")}


@pytest.mark.parametrize("nth", range(1, 9))
def test_a_disk_that_fails_some_reads_does_not_keep_it_from_starting(real_directory: Path, nth: int) -> None:
    """A single EIO, at every read of the start in turn, also at those after an exact repair."""
    cache = ClaimInfoCache(real_directory)
    cache.put(info_of("a", ["pod-1"]), info_of("b"))
    cache.close()
    damage.flip_bit(real_directory, "a")

    with failing(real_directory, "read", errno.EIO, nth=nth):
        cache = ClaimInfoCache(real_directory)

    cache.close()
    assert {claim.uid for claim in cache} == {"a", "b"}


def test_a_second_owner_is_refused_with_the_label_of_the_first(real_directory: Path) -> None:
    first = ClaimInfoCache(real_directory, owner="dra-agent")

    with pytest.raises(DirectoryLocked, match="dra-agent"):
        ClaimInfoCache(real_directory)

    first.close()
    first.close()
    ClaimInfoCache(real_directory).close()


def test_a_directory_opened_for_sharing_is_refused_and_given_back(real_directory: Path) -> None:
    with pytest.raises(ValueError, match="the directory to itself"):
        ClaimInfoCache(real_directory, sharing=True)
    with pytest.raises(ValueError, match="the directory to itself"):
        ClaimInfoCache(FileStore(real_directory, sharing=True))
    with pytest.raises(ValueError, match="the directory to itself"):
        ClaimInfoCache(real_directory, read_only=True)

    ClaimInfoCache(real_directory).close()
