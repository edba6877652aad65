"""Outages replayed next to the approach that caused them, and replays that no other room has a test for."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from pyfakefs.fake_filesystem import FakeFilesystem

from checkpoint_verify import kubelet
from checkpointmanager import (
    CheckpointError,
    CheckpointManager,
    CorruptCheckpoint,
    DirectoryUnusable,
    Reason,
    Schema,
)
from checkpointmanager.testing import acknowledge, damage, every_crash, every_fault
from draState import (
    Allocation,
    ClaimInfoCache,
    ClaimRef,
    ContainerClaim,
    Device,
    DRAError,
    DRAManager,
    Pod,
    PrepareResult,
    ResourceClaim,
)

from .naive import Corrupted, open_struct, rename_without_sync, seal_struct


@pytest.fixture
def directory(fs: FakeFilesystem) -> Path:
    fs.create_dir("/var/lib/agent")
    return Path("/var/lib/agent/state")


@dataclass
class Devices117:
    pods: dict[str, list[str]]


@dataclass
class Devices118:
    pods: dict[str, list[str]]
    numa: dict[str, int] = field(default_factory=dict)


def test_kubernetes_86676_a_new_field_is_neither_corruption_nor_lost_on_rollback(directory: Path) -> None:
    """One more field in the struct changed its checksum: kubelet 1.18 panicked over 1.17's file, and vice versa."""
    state = {"pod-1": ["gpu-0"]}
    with pytest.raises(Corrupted):
        open_struct(seal_struct(Devices117(state)), Devices118)
    with pytest.raises(Corrupted):
        open_struct(seal_struct(Devices118(state, {"gpu-0": 1})), Devices117)

    older = Schema("Devices", version=1, type=Devices117)
    newer = Schema("Devices", version=2, type=Devices118, readable_by=1)
    with CheckpointManager(directory, older) as old:
        old.create_checkpoint("devices", Devices117(state))
    with CheckpointManager(directory, newer) as new:
        assert new.get_checkpoint("devices").data == Devices118(state, {})
        new.create_checkpoint("devices", Devices118(state, {"gpu-0": 1}))
    with CheckpointManager(directory, older) as old:  # the upgrade is rolled back
        old.update_checkpoint("devices", lambda devices: Devices117(devices.pods | {"pod-2": ["gpu-1"]}))
    with CheckpointManager(directory, newer) as new:
        after = new.get_checkpoint("devices").data
    assert after == Devices118(state | {"pod-2": ["gpu-1"]}, {"gpu-0": 1})


@dataclass
class Resources:
    cpu: str
    memory: str = "0"


@dataclass
class Restored:
    cpu: str
    memory: object = 0


def test_kubernetes_117589_restarts_without_end_change_nothing(directory: Path) -> None:
    """Restoring added "memory":"0" to the state in memory; stored at the first restart, it was fatal at the second."""
    restored = seal_struct(Restored("1"))  # in memory the zero is a number ...
    with pytest.raises(Corrupted):
        open_struct(restored.replace(b'"memory": 0', b'"memory": "0"'), Restored)  # ... and in the file a text

    with CheckpointManager(directory, Schema("Resources")) as before:
        before.create_checkpoint("pod-1", {"cpu": "1"})
    seen = []
    for _ in range(4):
        with CheckpointManager(directory, Schema("Resources", type=Resources)) as manager:
            assert manager.verify().intact == 1
            manager.create_checkpoint("pod-1", manager.get_checkpoint("pod-1").data)
        seen.append((directory / "pod-1.json").read_text().partition(',"data":')[2])

    assert seen == ['{"cpu":"1","memory":"0"}}\n'] * 4, "load and store give the same bytes for ever"


@dataclass
class Prepared:
    device: str
    status: str = ""


@dataclass
class PreparedWithMore:
    device: str
    status: str = ""
    share: str | None = None


@dataclass
class PreparedWithLess:
    device: str


@dataclass
class PreparedInOtherOrder:
    status: str
    device: str


@pytest.mark.parametrize("upstream", [PreparedWithMore, PreparedWithLess, PreparedInOtherOrder])
def test_nvidia_1080_a_foreign_struct_that_changes_is_no_corruption(directory: Path, upstream: type[Any]) -> None:
    """A struct of another project inside the checkpoint changed, twice, and each upgrade was a CrashLoopBackOff."""
    with pytest.raises(Corrupted):
        open_struct(seal_struct(Prepared("gpu-0", "ready")), upstream)
    with CheckpointManager(directory, Schema("Prepared", type=Prepared)) as old:
        old.create_checkpoint("claim", Prepared("gpu-0", "ready"))

    with CheckpointManager(directory, Schema("Prepared", type=upstream)) as new:  # not even a new version number
        assert not new.load().problems
        new.update_checkpoint("claim", lambda prepared: prepared)
        assert new.get_checkpoint("claim").data.device == "gpu-0"
        assert new.verify().intact == 1


def test_amazon_ecs_agent_1983_a_downgraded_agent_still_gets_rid_of_a_newer_file(directory: Path) -> None:
    """An older agent refused the newer one's state as a whole, so that there was no way back."""
    with CheckpointManager(directory, Schema("Claim", version=2)) as new:
        new.create_checkpoint("claim-1", {"devices": []})
    with CheckpointManager(directory, Schema("Claim", version=1, type=Prepared)) as old:
        old.create_checkpoint("claim-2", Prepared("gpu-0"))

        assert list(old.load().checkpoints) == ["claim-2"], "it starts with what it can read"
        old.remove_checkpoint("claim-1")

        assert old.list_checkpoints() == ["claim-2"]


def test_kubernetes_139050_nothing_is_decoded_from_a_file_that_does_not_verify(directory: Path) -> None:
    """An object half filled from a file with a bad checksum was reused for the older form: a hybrid state."""
    decoded: list[Any] = []

    def decode(data: Any) -> Any:
        decoded.append(data)
        return data

    schema: Schema[Any] = Schema("Cpus", version=2, encode=lambda data: data, decode=decode)
    with CheckpointManager(directory, schema) as manager:
        for data in ({"default": "0-3"}, {"default": "0-1"}):
            manager.create_checkpoint("cpus", data)
        decoded.clear()
        damage.flip_bit(directory, "cpus")

        assert _reason(manager, "cpus") is Reason.CHECKSUM_MISMATCH
        assert decoded == []

        before = manager.previous_checkpoint("cpus")
        assert before is not None
        assert before.data == {"default": "0-3"}, "the previous generation is decoded into an object of its own"


ALL_CPUS = list(range(8))


@dataclass
class Cpus:
    free: list[int]
    assigned: dict[str, list[int]]

    def is_sound(self) -> bool:
        return sorted(sum(self.assigned.values(), self.free)) == ALL_CPUS


CPUS = Schema("Cpus", type=Cpus)


def test_kubernetes_84783_an_assignment_and_what_it_leaves_are_one_change() -> None:
    """The assignment and the default set were saved one after the other; a crash between them leaked CPUs."""

    def two_checkpoints(directory: Path) -> CheckpointManager[Any]:
        manager = CheckpointManager(directory)
        manager.create_checkpoint("free", ALL_CPUS)
        manager.create_checkpoint("assigned", {})
        return manager

    def assign_in_two_writes(manager: CheckpointManager[Any]) -> None:
        manager.create_checkpoint("assigned", {"pod": [0, 1]})
        manager.create_checkpoint("free", ALL_CPUS[2:])

    unsound = 0
    for death in every_fault(assign_in_two_writes, setup=two_checkpoints, errors=()):
        with CheckpointManager(death.directory) as manager:
            unsound += not Cpus(*(manager.get_checkpoint(key).data for key in ("free", "assigned"))).is_sound()
    assert unsound, "the approach that failed"

    def one_checkpoint(directory: Path) -> CheckpointManager[Cpus]:
        manager = CheckpointManager(directory, CPUS)
        manager.create_checkpoint("cpus", Cpus(ALL_CPUS, {}))
        return manager

    def assign(manager: CheckpointManager[Cpus]) -> None:
        manager.update_checkpoint("cpus", lambda cpus: Cpus(cpus.free[2:], {"pod": cpus.free[:2]}))

    deaths = every_fault(assign, setup=one_checkpoint, errors=())
    for death in deaths:
        with CheckpointManager(death.directory, CPUS) as cpus:
            assert cpus.get_checkpoint("cpus").data.is_sound()
    assert deaths.runs > 10, "one for each system call of the write"


def test_amazon_ecs_agent_1301_stop_and_start_leaves_an_empty_state_file() -> None:
    """An EC2 stop and start often left an empty state file, and the agent restarted over it again and again."""

    def work(directory: Path) -> None:
        rename_without_sync(directory / "naive.json", b'{"cluster":"default"}')
        with CheckpointManager(directory) as manager:
            for network in ("bridge", "host"):
                manager.create_checkpoint("agent", network)
        acknowledge("done")

    left = set()
    for crash in every_crash(work):
        if not crash.acknowledged:
            continue
        left.add((crash.directory / "naive.json").read_bytes())  # its name is there, since we synced the directory
        with CheckpointManager(crash.directory) as manager:
            assert manager.get_checkpoint("agent").data == "host"
    assert {b"", bytes(21)} < left, "empty, or nothing but NUL bytes"


@pytest.mark.parametrize(
    "left",
    [b"", b"\0" * 300, b"{", b'{"checksum":"xxh3:', b"\xff" * 50, b"null", b'{"checksum":"md9:0123456789abcdef",}\n'],
)
def test_multus_948_deleting_a_pod_needs_no_readable_file(directory: Path, left: bytes) -> None:
    """The cache file was empty after a reboot; deleting the pod meant parsing it, and so failed for ever."""
    with CheckpointManager(directory, Schema("Sandbox")) as manager:
        for network in ("bridge", "host"):
            manager.create_checkpoint("pod-a", network)
        manager.create_checkpoint("pod-b", "host")
    (directory / "pod-a.json").write_bytes(left)
    parsed: list[Any] = []
    schema: Schema[Any] = Schema("Sandbox", encode=lambda data: data, decode=parsed.append)
    with CheckpointManager(directory, schema) as manager:
        manager.remove_checkpoint("pod-a")
        manager.remove_checkpoint("pod-b")  # a good one need not be parsed either

        assert manager.list_checkpoints() == []
    assert parsed == []
    assert not list(directory.glob(".previous-*")), "nothing is left from which it could come back"


@pytest.mark.parametrize("name", [".tmp-0badcafe-1", ".state.json", ".Radicale.tmp-x.json", "state.json.tmp", "state~"])
def test_radicale_443_a_leftover_temp_file_is_never_loaded_as_an_item(directory: Path, name: str) -> None:
    """A temp file that a crash had left was listed, parsed and served as if it were an item."""
    with CheckpointManager(directory) as manager:
        manager.create_checkpoint("state", "pod")
    (directory / name).write_bytes((directory / "state.json").read_bytes())

    with CheckpointManager(directory) as manager:
        loaded = manager.load()

    assert list(loaded.checkpoints) == ["state"]
    assert not loaded.problems


TWINS = ("pod-69d19deb1c", "pod-ff81d0f447")  # found by trying some 80,000 names


def test_rocm_86_two_states_with_one_32_bit_checksum_are_told_apart(directory: Path) -> None:
    """Equal 32-bit checksums were to decide whether state may be deleted, and collisions of 32 bits are common."""
    one, other = (json.dumps({"ClaimInfoStateList": None, "kind": kind}) for kind in TWINS)
    assert zlib.crc32(one.encode()) == zlib.crc32(other.encode())
    swapped = json.dumps({"Data": other, "Checksum": zlib.crc32(one.encode())}).encode()
    judged = kubelet.inspect(swapped, "dra_manager_state")
    assert judged is not None
    assert judged.verdict is kubelet.Verdict.VALID, "kubelet cannot see it"

    with CheckpointManager(directory) as manager:
        manager.create_checkpoint("claims", json.loads(one))
        path = directory / "claims.json"
        path.write_bytes(path.read_bytes().replace(TWINS[0].encode(), TWINS[1].encode()))
        assert _reason(manager, "claims") is Reason.CHECKSUM_MISMATCH


def test_filelock_574_the_lock_file_is_never_unlinked(tmp_path: Path) -> None:
    """The lock file was unlinked on release: a waiter on the old inode and the maker of a new one both had it."""
    assert int(version("filelock").split(".")[0]) >= 4
    inodes = set()
    for _ in range(3):
        with CheckpointManager(tmp_path / "state"):
            inodes.add((tmp_path / "state" / ".lock").stat().st_ino)
        inodes.add((tmp_path / "state" / ".lock").stat().st_ino)

    assert len(inodes) == 1


@pytest.mark.parametrize("code", [errno.ENOSYS, errno.ENOTSUP])
def test_filelock_603_a_kernel_without_locks_is_an_error_not_a_weaker_lock(tmp_path: Path, code: int) -> None:
    """Where the kernel refused the lock, the mere existence of a file silently took its place."""
    with (
        mock.patch.object(fcntl, "flock", side_effect=OSError(code, os.strerror(code))),
        pytest.raises(DirectoryUnusable) as refusal,
    ):
        CheckpointManager(tmp_path / "state")

    assert refusal.value.errno == code


class Node:
    """An agent with one pod that has its GPU, and the driver that set it up."""

    def __init__(self, directory: Path) -> None:
        self.set_up: set[str] = set()  # claim UIDs
        self.cache = ClaimInfoCache(directory)
        self.manager = DRAManager(self.cache, {"gpu.example.com": self})
        self.manager.prepare_resources(_pod(1))

    def prepare(self, claims: Sequence[ClaimRef]) -> Mapping[str, PrepareResult]:
        self.set_up |= {claim.uid for claim in claims}
        return {claim.uid: PrepareResult((Device("node-1", f"gpu-of-{claim.uid}"),)) for claim in claims}

    def unprepare(self, claims: Sequence[ClaimRef]) -> Mapping[str, str]:
        self.set_up -= {claim.uid for claim in claims}
        return {claim.uid: "" for claim in claims}

    def close(self) -> None:
        self.cache.close()


def test_azure_container_networking_4829_memory_and_disk_agree_whatever_fails() -> None:
    """ADD and DEL went through two stores in opposite order; one failed, and file and memory disagreed."""
    nodes: list[Node] = []

    def started(directory: Path) -> Node:
        nodes.append(Node(directory))
        return nodes[-1]

    def add_and_delete(node: Node) -> None:
        node.manager.prepare_resources(_pod(2))
        node.manager.unprepare_resources("pod-1")

    failures = every_fault(add_and_delete, setup=started, errors=[errno.EIO], deaths=False)
    for failure in failures:
        assert isinstance(failure.error, CheckpointError | DRAError | None)
        node = nodes[-1]
        in_memory = {claim.uid: claim.state for claim in node.cache if not claim.unknown}
        in_doubt = node.cache.report().unknown
        restarted = ClaimInfoCache(failure.directory)
        on_disk = {claim.uid: claim.state for claim in restarted if claim.uid not in in_doubt}
        restarted.close()
        assert on_disk == in_memory
        assert node.set_up <= {*on_disk, *in_doubt}, "every device in use has its record"
    assert failures.runs > 20, "one for each system call of both"


def _pod(number: int) -> Pod:
    name, uid = f"pod-{number}", f"uid-{number}"
    claim = ResourceClaim(uid, f"gpu-{number}", "default", {"gpu.example.com": Allocation()}, frozenset({name}))
    return Pod(name, name, "default", {"gpu": claim}, {"main": (ContainerClaim("gpu"),)})


def _reason(manager: CheckpointManager[Any], key: str) -> Reason:
    problem = manager.load().problems[key]
    assert isinstance(problem, CorruptCheckpoint)
    return problem.reason
