"""Everything above the Store works on etcd as it does on files, and the bytes are the same."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from xxhash import xxh3_64_hexdigest

from checkpointmanager import (
    CheckpointManager,
    CorruptCheckpoint,
    Outcome,
    Put,
    Replaces,
)
from draState import (
    Allocation,
    ClaimInfoCache,
    ClaimRef,
    Device,
    DeviceConfig,
    DRAManager,
    Pod,
    PodConfigStore,
    PrepareResult,
    ResourceClaim,
)

from .conftest import Opening
from .line import Line
from .servers import Cluster, any_etcd

Manager = CheckpointManager[Any]
GPU = "gpu.example.com"


def test_a_checkpoint_in_etcd_has_the_bytes_of_one_in_a_file_and_can_be_copied(
    cluster: Cluster, opening: Opening, prefix: str, real_directory: Path
) -> None:
    with CheckpointManager[Any](real_directory) as manager:
        manager.create_checkpoint("pod-7", {"holder": "node-a"})
    in_file = (real_directory / "pod-7.json").read_bytes()
    etcdctl = Path(any_etcd()).with_name("etcdctl")
    if not etcdctl.exists():
        pytest.skip("there is no etcdctl beside this etcd")
    command = [str(etcdctl), "--endpoints", cluster.endpoints[0]]
    environment = {"ETCDCTL_API": "3", "PATH": os.environ["PATH"]}
    put = [*command, "put", "--", f"{prefix}/pod-7.json"]
    subprocess.run(put, input=in_file, check=True, capture_output=True, env=environment)
    manager = CheckpointManager(opening())
    assert manager.get_checkpoint("pod-7").data == {"holder": "node-a"}
    manager.update_checkpoint("pod-7", lambda data: {**data, "renewals": 1})
    # As in ETCD.md: etcdctl appends a newline, which `head -c -1` cuts off.
    get = [*command, "get", "--print-value-only", f"{prefix}/pod-7.json"]
    shown = subprocess.run(get, check=True, capture_output=True, env=environment).stdout[:-1]
    assert shown[18:34].decode() == xxh3_64_hexdigest(shown[36:])
    if shutil.which("xxhsum"):  # exactly as in ETCD.md
        pipeline = f"{shlex.join(get)} | head -c -1 | tail -c +37 | xxhsum -H3"
        hashed = subprocess.run(["sh", "-c", pipeline], check=True, capture_output=True, env=environment).stdout
        assert shown[18:34] in hashed
    (real_directory / "pod-7.json").write_bytes(shown)
    with CheckpointManager[Any](real_directory) as again:
        assert again.get_checkpoint("pod-7") == manager.get_checkpoint("pod-7")


def test_nothing_but_the_module_itself_imports_what_only_etcd_needs() -> None:
    names = "checkpointmanager, checkpointmanager.aio, checkpointmanager.testing, draState, draState.aio"
    program = f"import sys, {names}; sys.exit(any(name in sys.modules for name in ('grpc', 'google.protobuf')))"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


def test_load_repairs_damage_exactly_and_rolls_back_on_request(opening: Opening) -> None:
    store = opening()
    manager: Manager = CheckpointManager(store)
    for number in range(40):
        manager.create_checkpoint(f"k{number}", number)
        manager.create_checkpoint(f"k{number}", number + 100)
    store.commit(
        [Put("k7", _flipped(store.read("k7")), 1, Replaces.DAMAGED), Put("k9", b"rubbish", 1, Replaces.DAMAGED)]
    )
    loaded = manager.load(repair=True)
    assert loaded.checkpoints["k7"].data == 107
    assert list(loaded.problems) == ["k9"]
    assert loaded.recoveries["k7"].quarantined in store.quarantined()["k7"]
    with pytest.raises(CorruptCheckpoint, match="checkpoint-verify diagnose etcd://"):
        manager.get_checkpoint("k9")
    assert manager.recover_checkpoint("k9", rollback=True).outcome is Outcome.ROLLED_BACK
    assert manager.get_checkpoint("k9").data == 9


def _flipped(blob: bytes) -> bytes:
    return blob[:60] + bytes([blob[60] ^ 1]) + blob[61:]


def test_a_load_asks_for_pages_and_not_for_each_key(opening: Opening, line: Line) -> None:
    with CheckpointManager[Any](opening()) as manager, manager.batch() as batch:
        for number in range(700):
            batch.create_checkpoint(f"k{number}", number)
    restarted: Manager = CheckpointManager(opening())
    del line.sent[:]
    loaded = restarted.load()
    assert {key: found.data for key, found in loaded.checkpoints.items()} == {f"k{n}": n for n in range(700)}
    assert line.sent == ["Range"] + ["Txn"] * 6  # the list, and 700 keys, 128 at once


class Gpus:
    """One device per claim."""

    def prepare(self, claims: Sequence[ClaimRef]) -> Mapping[str, PrepareResult]:
        return {claim.uid: PrepareResult((Device("node", f"gpu-{claim.uid}"),)) for claim in claims}

    def unprepare(self, claims: Sequence[ClaimRef]) -> Mapping[str, str]:
        return {claim.uid: "" for claim in claims}


def test_claims_and_pod_configs_survive_a_restart_and_another_node_can_release_them(
    opening: Opening, prefix: str
) -> None:
    claims = {
        uid: ResourceClaim(uid, f"claim-{uid}", "ml", {GPU: Allocation()}, frozenset({"pod"})) for uid in ("c1", "c2")
    }
    pod = Pod("pod", "trainer", "ml", claims)
    with closing(ClaimInfoCache(opening(prefix=f"{prefix}/claims"))) as cache:
        DRAManager(cache, {GPU: Gpus()}).prepare_resources(pod)
    with PodConfigStore(opening(prefix=f"{prefix}/pods")) as configs:
        configs.set_device_config("pod", "gpu-c1", DeviceConfig({"mode": 1}, "c1", "claim-c1", "ml"))
    with closing(ClaimInfoCache(opening(prefix=f"{prefix}/claims", owner="another node"))) as cache:
        assert sorted(claim.uid for claim in cache) == ["c1", "c2"]
        DRAManager(cache, {GPU: Gpus()}).reconcile([], complete=True)
        assert len(cache) == 0
    with PodConfigStore(opening(prefix=f"{prefix}/pods")) as configs:
        config = configs.get_device_config("pod", "c1", "gpu-c1")
        assert config
        assert config.config == {"mode": 1}
