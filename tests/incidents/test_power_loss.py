"""Files that were empty after the power failed, because nothing had synced them to the disk."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from checkpointmanager import CheckpointManager
from checkpointmanager.testing import acknowledge, every_crash
from draState import ClaimInfo, ClaimInfoCache, ClaimInfoState

from .naive import rename_without_sync
from .sandboxes import Sandbox, opened

GOOD = "last known good"


def after_all(work: Callable[[Path], object]) -> Iterator[Path]:
    """Every directory that a power loss may leave when the work is done."""

    def scenario(directory: Path) -> None:
        work(directory)
        acknowledge("done")

    return (crash.directory for crash in every_crash(scenario) if crash.acknowledged)


def test_amazon_ecs_agent_1301_stop_and_start_leaves_an_empty_state_file() -> None:
    """An EC2 stop and start left an empty state file more often than not, and the agent went round in circles."""

    def work(directory: Path) -> None:
        rename_without_sync(directory / "naive.json", b'{"cluster":"default"}')
        with opened(directory) as manager:
            for network in ("bridge", "host"):
                manager.create_checkpoint("agent", Sandbox("agent", network))

    left = set()
    for after in after_all(work):
        left.add((after / "naive.json").read_bytes())  # its name is there, since we have synced the directory
        with opened(after) as manager:
            assert manager.get_checkpoint("agent").data == Sandbox("agent", "host")
    assert {b"", bytes(21)} < left, "empty, or nothing but NUL bytes"


@pytest.mark.parametrize("change", ["create", "overwrite", "update", "batch", "remove"])
def test_kubernetes_52222_every_write_is_synced_before_it_is_acknowledged(change: str) -> None:
    """Kubelet's config checkpoints were written without a sync, so a hard reset could leave them empty."""

    def work(directory: Path) -> None:
        with CheckpointManager(directory) as manager:
            if change != "create":
                manager.create_checkpoint("config", "assigned")
            if change == "update":
                manager.update_checkpoint("config", lambda _: GOOD)
            elif change == "batch":
                with manager.batch() as batch:
                    batch.create_checkpoint("config", GOOD)
                    batch.create_checkpoint("other", GOOD)
            elif change == "remove":
                manager.remove_checkpoint("config")
            else:
                manager.create_checkpoint("config", GOOD)

    kept = {"remove": {}, "batch": {"config": GOOD, "other": GOOD}}.get(change, {"config": GOOD})
    disks = 0
    for after in after_all(work):
        with CheckpointManager(after) as manager:
            loaded = manager.load()
        assert not loaded.problems
        assert {key: checkpoint.data for key, checkpoint in loaded.checkpoints.items()} == kept
        disks += 1
    assert disks


def test_kubernetes_54088_device_checkpoints_survive_a_hard_reset() -> None:
    """Kubelet's device checkpoint was neither synced nor renamed into place: after a hard reset it could be empty."""

    def work(directory: Path) -> None:
        cache = ClaimInfoCache(directory)
        for number in range(3):
            cache.put(ClaimInfo(ClaimInfoState(f"claim-{number}", f"gpu-{number}", "default")))
        cache.delete("claim-1")
        cache.close()

    disks = 0
    for after in after_all(work):
        cache = ClaimInfoCache(after)
        assert {claim.uid for claim in cache} == {"claim-0", "claim-2"}
        assert not cache.report().degraded
        cache.close()
        disks += 1
    assert disks
