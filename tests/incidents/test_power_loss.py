"""Files that were empty after the power failed, because nobody had told the disk to keep them."""

from __future__ import annotations

import json

import pytest

from checkpointmanager import CheckpointManager
from draState import ClaimInfo, ClaimInfoCache, ClaimInfoState

from .naive import rename_without_sync
from .platter import Platter
from .sandboxes import Sandbox, opened

GOOD = "last known good"


def test_amazon_ecs_agent_1301_stop_and_start_leaves_an_empty_state_file(platter: Platter) -> None:
    """An EC2 stop and start left an empty state file more often than not, and the agent went round in circles."""
    with platter.spinning():
        rename_without_sync(platter.directory / "naive.json", b'{"cluster":"default"}')
        with opened(platter.directory) as manager:
            for network in ("bridge", "host"):
                manager.create_checkpoint("agent", Sandbox("agent", network))

    for after in platter.power_losses():
        with pytest.raises(ValueError):
            json.loads((after / "naive.json").read_bytes())
        with opened(after) as manager:
            assert manager.get_checkpoint("agent").data == Sandbox("agent", "host")


@pytest.mark.parametrize("change", ["create", "overwrite", "update", "batch", "remove"])
def test_kubernetes_52222_every_write_is_synced_before_it_is_acknowledged(platter: Platter, change: str) -> None:
    """Kubelet's config checkpoints were written without a sync, so a hard reset could leave them empty."""
    with platter.spinning(), CheckpointManager(platter.directory) as manager:
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
    for after in platter.power_losses():
        with CheckpointManager(after) as manager:
            loaded = manager.load()
        assert not loaded.problems
        assert {key: checkpoint.data for key, checkpoint in loaded.checkpoints.items()} == kept


def test_kubernetes_54088_device_checkpoints_survive_a_hard_reset(platter: Platter) -> None:
    """Kubelet's device checkpoint was neither synced nor renamed into place: after a hard reset it could be empty."""
    with platter.spinning():
        cache = ClaimInfoCache(platter.directory)
        for number in range(3):
            cache.put(ClaimInfo(ClaimInfoState(f"claim-{number}", f"gpu-{number}", "default")))
        cache.delete("claim-1")
        cache.close()

    for after in platter.power_losses():
        cache = ClaimInfoCache(after)
        assert {claim.uid for claim in cache} == {"claim-0", "claim-2"}
        assert not cache.report().degraded
        cache.close()
