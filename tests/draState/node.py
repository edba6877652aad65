"""A node with an agent on it, which can be restarted, killed and rebooted; and what must always be true of it."""

from __future__ import annotations

from pathlib import Path

from checkpointmanager import CheckpointManager, FileStore
from draState import CLAIMS, ClaimInfo, ClaimInfoCache, ClaimInfoState, DRAManager, DRAPlugin

from .claims import GPU, NIC
from .drivers import RecordingDriver
from .stores import WatchedStore

BOOT = "boot-a"


class Node:
    """The directory and the two drivers outlive the agent; `cache` and `manager` belong to the running agent."""

    def __init__(self, directory: Path, boot_id: str = BOOT) -> None:
        self.directory = directory
        self.boot_id = boot_id
        self.gpu = RecordingDriver(GPU)
        self.nic = RecordingDriver(NIC)
        self.drivers: dict[str, DRAPlugin] = {GPU: self.gpu, NIC: self.nic}
        self.start()

    def start(self) -> None:
        self.store = WatchedStore(FileStore(self.directory))
        self.cache = ClaimInfoCache(self.store, boot_id=self.boot_id)
        self.manager = DRAManager(self.cache, self.drivers)

    def stop(self) -> None:
        """Ends the agent. It writes nothing when it ends, so this is also what a kill leaves behind."""
        self.cache.close()

    def restart(self) -> None:
        self.stop()
        self.start()

    def reboot(self, boot_id: str) -> None:
        """Nothing that was prepared survives it."""
        self.stop()
        self.boot_id = boot_id
        self.gpu.prepared.clear()
        self.nic.prepared.clear()
        self.start()

    def claim(self, uid: str) -> ClaimInfo:
        """The record of a claim that must be there."""
        return claim_in(self.cache, uid)

    def file_of(self, uid: str) -> Path:
        return self.directory / f"{uid}.json"

    def on_disk(self) -> dict[str, ClaimInfoState]:
        return on_disk(self.directory)

    def files(self) -> list[str]:
        """All files of claims: names of checkpoints and of their previous generations."""
        names = [path.name for path in self.directory.iterdir()]
        return sorted(name for name in names if name.endswith(".json") or name.startswith((".previous-", ".tmp-")))


def claim_in(cache: ClaimInfoCache, uid: str) -> ClaimInfo:
    found = cache.get(uid)
    assert found
    return found


def on_disk(directory: Path) -> dict[str, ClaimInfoState]:
    """What another process would read now; a damaged file is an error."""
    with CheckpointManager(directory, CLAIMS, read_only=True) as manager:
        loaded = manager.load()
    assert not loaded.problems
    return {uid: checkpoint.data for uid, checkpoint in loaded.checkpoints.items()}


def assert_indexes_agree(cache: ClaimInfoCache) -> None:
    """The indexes match the records. No other thread may change them meanwhile."""
    names: dict[tuple[str, str], list[str]] = {}
    pods: dict[str, list[str]] = {}
    holders: dict[tuple[str, str, str], list[str]] = {}
    named: dict[tuple[str, str], set[str]] = {}  # whatever the pool
    for claim in cache:
        assert cache.get(claim.uid) is claim
        if any(claim.name):
            names.setdefault(claim.name, []).append(claim.uid)
        for pod in claim.state.pod_uids:
            pods.setdefault(pod, []).append(claim.uid)
        for device in claim.state.devices():
            holders.setdefault(device, []).append(claim.uid)
            named.setdefault((device[0], device[2]), set()).add(claim.uid)
    assert {name: sorted(uids) for name, uids in cache._uids.items()} == {name: sorted(names[name]) for name in names}
    assert {pod: sorted(uids) for pod, uids in cache._pods.items()} == {pod: sorted(pods[pod]) for pod in pods}
    assert {device: sorted(uids) for device, uids in cache._holders.items()} == {
        device: sorted(uids) for device, uids in named.items()
    }
    assert cache.pods() == pods.keys()
    for name, uids in names.items():
        found = cache.by_name(*name)
        assert found is not None
        assert found.uid in uids
    for pod, uids in pods.items():
        assert {claim.uid for claim in cache.of_pod(pod)} == set(uids)
    for device, uids in holders.items():
        assert cache.holders(*device) == set(uids)
    for (driver, device_name), claims in named.items():
        assert cache.holders(driver, None, device_name) == claims


def assert_memory_equals_disk(node: Node) -> None:
    """For trusted claims; others are in memory only as a guess."""
    trusted = {claim.uid: claim.state for claim in node.cache if not claim.unknown}
    kept = node.on_disk()
    assert {uid: kept.get(uid) for uid in trusted} == trusted
    assert kept.keys() <= {claim.uid for claim in node.cache}
