"""A file system without room, one without inodes, and one that has become read-only under a live owner."""

from __future__ import annotations

import errno
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from checkpointmanager import BatchFailed, CheckpointManager, CheckpointWriteFailed
from draState import ClaimInfoCache, DRAManager, PrepareFailed

from ..checkpointmanager.contents import names
from ..checkpointmanager.leases import LEASES
from ..checkpointmanager.leases import NEW as LEASE
from ..checkpointmanager.scenarios import CHANGES as CHANGED
from ..checkpointmanager.scenarios import leave_as_killed, values
from ..checkpointmanager.volume import Mount, Tmpfs, Volume, VolumeUnavailable, mounted_volume
from ..draState.claims import GPU, claim_of, pod_of
from ..draState.drivers import RecordingDriver
from ..draState.node import assert_indexes_agree
from .agent import CHANGES, KEYS, NEW, OLD, Manager, found
from .mounts import fill, give_back, remount, use_up_inodes

BEFORE = dict.fromkeys(KEYS, OLD)
LARGE = "x" * 100_000  # more than any slack of a file system
FULL = {"bytes": fill, "inodes": use_up_inodes}


@pytest.fixture(scope="module", params=["tmpfs", "ext4"])
def mount(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mount]:
    """Small, and with few inodes."""
    folder = tmp_path_factory.mktemp(request.param)
    try:
        mount = Tmpfs(folder, size="2m", inodes=256) if request.param == "tmpfs" else Volume(folder, "ext4-few-inodes")
    except VolumeUnavailable as why:
        pytest.skip(str(why))
    try:
        yield mount
    finally:
        mount.unmount()


@pytest.fixture
def disk(mount: Mount) -> Iterator[Mount]:
    """Empty again after each test."""
    yield mount
    give_back(mount)
    shutil.rmtree(mount.path / "claims")


@pytest.fixture
def volume(tmp_path: Path) -> Iterator[Volume]:
    with mounted_volume(tmp_path) as volume:
        yield volume


each_want = pytest.mark.parametrize("use_up", FULL.values(), ids=FULL)


def _start(manager: Manager) -> None:
    for key in KEYS:
        manager.create_checkpoint(key, OLD)


@each_want
def test_without_room_every_write_fails_cleanly_a_removal_succeeds_and_with_room_all_goes_on(
    disk: Mount, use_up: Callable[[Mount], None]
) -> None:
    directory = disk.path / "claims"
    with CheckpointManager(directory) as manager:
        _start(manager)
        use_up(disk)

        writes: list[Callable[[], object]] = [
            lambda: manager.create_checkpoint("new", LARGE),
            lambda: manager.create_checkpoint("a", LARGE),
            lambda: manager.update_checkpoint("a", lambda _: LARGE),
        ]
        for write in writes:
            with pytest.raises(CheckpointWriteFailed, match="No space left on device") as failure:
                write()
            assert (failure.value.errno, failure.value.in_doubt) == (errno.ENOSPC, False)
        with pytest.raises(BatchFailed) as failed, manager.batch() as batch:
            for key in KEYS:
                batch.create_checkpoint(key, LARGE)
        assert failed.value.failures.keys() == set(KEYS)
        assert found(manager) == BEFORE
        assert names(directory, ".tmp-") == []

        manager.remove_checkpoint("c")
        assert found(manager) == {"a": OLD, "b": OLD}

        give_back(disk)
        manager.create_checkpoint("c", OLD)
        for change in CHANGES.values():
            change(manager)
        assert found(manager) == dict.fromkeys((*KEYS, "new"), NEW)
    with CheckpointManager(directory) as manager:
        assert found(manager) == dict.fromkeys((*KEYS, "new"), NEW)


@each_want
def test_a_directory_can_be_opened_and_read_without_room(disk: Mount, use_up: Callable[[Mount], None]) -> None:
    directory = disk.path / "claims"
    with CheckpointManager(directory) as manager:
        _start(manager)
    (directory / ".tmp-left-1").write_bytes(b"half")
    use_up(disk)

    with CheckpointManager(directory) as manager:
        assert found(manager) == BEFORE
        assert names(directory, ".tmp-") == []
        manager.remove_checkpoint("a")
        assert found(manager) == {"b": OLD, "c": OLD}


@each_want
def test_the_journal_of_a_killed_owner_is_taken_over_without_room(disk: Mount, use_up: Callable[[Mount], None]) -> None:
    directory = disk.path / "claims"
    leave_as_killed(directory, CHANGED["transaction"].act)
    use_up(disk)

    with CheckpointManager(directory, LEASES) as manager:
        assert values(manager) == CHANGED["transaction"].after
        manager.remove_checkpoint("a")
        assert "a" not in manager
    with CheckpointManager(directory, LEASES) as manager:
        assert "a" not in manager
        give_back(disk)
        manager.create_checkpoint("a", LEASE)
    with CheckpointManager(directory, LEASES) as manager:
        assert values(manager) == CHANGED["transaction"].after | {"a": LEASE}
    assert not (directory / ".journal").exists()


@each_want
def test_claims_on_a_full_disk_are_neither_half_prepared_nor_lost(disk: Mount, use_up: Callable[[Mount], None]) -> None:
    directory = disk.path / "claims"
    driver = RecordingDriver(GPU)
    cache = ClaimInfoCache(directory)
    manager = DRAManager(cache, {GPU: driver})
    first, second = pod_of("pod-1", claim_of("a")), pod_of("pod-2", *(claim_of("b" * 40 + str(n)) for n in range(60)))
    manager.prepare_resources(first)
    use_up(disk)

    with pytest.raises((CheckpointWriteFailed, PrepareFailed)):
        manager.prepare_resources(second)
    assert_indexes_agree(cache)
    assert driver.prepared <= {claim.uid for claim in cache}
    manager.unprepare_resources(first)
    assert "a" not in cache

    give_back(disk)
    manager.prepare_resources(second)
    assert driver.prepared == {claim.uid for claim in cache} == second.needed_claims().keys()
    cache.close()


def test_a_sharer_s_file_system_made_read_only_refuses_writes_serves_reads_and_works_again_when_writable(
    volume: Volume,
) -> None:
    with CheckpointManager(volume.path / "claims", sharing=True) as manager:
        _start(manager)
        remount(volume, "ro")
        for change in CHANGES.values():
            with pytest.raises(OSError, match="Read-only file system") as failure:
                change(manager)
            assert failure.value.errno == errno.EROFS
            assert not getattr(failure.value, "in_doubt", False)
        assert found(manager) == BEFORE
        remount(volume, "rw")
        CHANGES["batch"](manager)
        assert found(manager) == dict.fromkeys(KEYS, NEW)


def test_an_owner_whose_file_system_gives_up_gets_an_error_serves_reads_and_loses_nothing(volume: Volume) -> None:
    """As with errors=remount-ro after a disk error. An owner has its lock file open, so a mere remount is refused."""
    directory = volume.path / "claims"
    with CheckpointManager(directory) as manager:
        _start(manager)
        remount(volume, "abort")
        for change in CHANGES.values():
            with pytest.raises(CheckpointWriteFailed) as failure:
                change(manager)
            assert failure.value.errno in (errno.EROFS, errno.EIO, errno.ESHUTDOWN)
            # Only a removal needs no new file, so it gets as far as the journal.
            assert change is CHANGES["remove"] or not failure.value.in_doubt
        assert found(manager) == BEFORE
    volume.unmount()
    volume.mount()
    with CheckpointManager(directory) as manager:
        assert found(manager) == BEFORE
        CHANGES["batch"](manager)
        assert found(manager) == dict.fromkeys(KEYS, NEW)
