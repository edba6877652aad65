"""A commit that fails half-way: what it refuses, what it cleans up, what its error says."""

from __future__ import annotations

import errno
import os
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from unittest import mock

import pytest

from checkpointmanager import CheckpointManager, CheckpointWriteFailed, Current, Put
from checkpointmanager._filestore.commit import Commit
from checkpointmanager._filestore.directory import Directory
from checkpointmanager._filestore.quarantine import Quarantine
from checkpointmanager._filestore.spares import Spares
from checkpointmanager.testing import Call, failing, watching

from ..contents import names
from ..leases import LEASES, NEW, OLD, Lease
from ..processes import open_descriptors
from ..scenarios import found, known, orphaned


def test_where_the_previous_generation_cannot_be_kept_nothing_is_written(real_directory: Path) -> None:
    with found(real_directory) as manager:
        with (
            failing(real_directory, "rename", about=".previous-a", lasting=True),
            pytest.raises(CheckpointWriteFailed) as caught,
        ):
            manager.create_checkpoint("a", NEW)
        assert (caught.value.errno, caught.value.in_doubt) == (errno.EIO, False)
        assert manager.get_checkpoint("a").data == OLD
    assert names(real_directory) == [".lock", ".previous-a", "a.json"]


def test_where_an_orphan_cannot_be_removed_no_checkpoint_gets_it_as_its_past(real_directory: Path) -> None:
    with orphaned(real_directory) as manager:
        with (
            failing(real_directory, "rename", about=".previous-a", lasting=True),
            pytest.raises(CheckpointWriteFailed) as caught,
        ):
            manager.create_checkpoint("a", NEW)
        assert (caught.value.errno, caught.value.in_doubt) == (errno.EIO, False)
        assert "a" not in manager


def test_a_removal_leaves_nothing_of_either_generation(real_directory: Path) -> None:
    with known(real_directory) as manager:
        manager.remove_checkpoint("a")
        assert names(real_directory) == [".lock"]


def test_a_removal_that_failed_leaves_both_generations(real_directory: Path) -> None:
    with known(real_directory) as manager:
        with failing(real_directory, "rename", about="a.json", lasting=True), pytest.raises(CheckpointWriteFailed):
            manager.remove_checkpoint("a")
        assert names(real_directory) == [".lock", ".previous-a", "a.json"]


def test_a_failure_has_the_error_of_the_system_as_its_cause(real_directory: Path) -> None:
    with CheckpointManager(real_directory, LEASES) as manager:
        with (
            failing(real_directory, "rename", about="a.json", lasting=True),
            pytest.raises(CheckpointWriteFailed) as caught,
        ):
            manager.create_checkpoint("a", NEW)
        assert isinstance(caught.value.__cause__, OSError)
        assert str(real_directory / "a.json") in str(caught.value)


def test_a_close_that_fails_after_a_failed_sync_hides_nothing_and_leaves_nothing(real_directory: Path) -> None:
    with CheckpointManager(real_directory, LEASES) as manager:
        with (
            failing(real_directory, "fsync", errno.EIO, lasting=True),
            failing(real_directory, "close", errno.EDQUOT, lasting=True),
            pytest.raises(CheckpointWriteFailed) as caught,
        ):
            manager.create_checkpoint("a", NEW)
        assert caught.value.errno == errno.EIO
        assert names(real_directory) == [".lock"]


def test_until_it_has_its_name_each_file_is_called_unfinished(real_directory: Path) -> None:
    with found(real_directory) as manager, watching(real_directory) as calls:
        manager.create_checkpoint("a", NEW)
    moved = [call.about for call in calls if call.name == "rename"]
    assert [name.split()[1] for name in moved] == [".previous-a", "a.json"]
    assert all(name.startswith(".tmp-") for name in moved)


def test_a_write_that_changed_no_name_syncs_none(real_directory: Path) -> None:
    with CheckpointManager(real_directory, LEASES) as manager:
        with failing(real_directory, "rename", about="a.json") as injector, pytest.raises(CheckpointWriteFailed):
            manager.create_checkpoint("a", NEW)
        assert [call.name for call in injector.calls].count("fsync") == 1, "only the data"


def test_a_batch_has_few_files_open_at_once(real_directory: Path) -> None:
    open_at_sync: list[int] = []

    def look(call: Call) -> None:
        if call.name == "fsync":
            open_at_sync.append(open_descriptors())

    with CheckpointManager(real_directory, LEASES) as manager:
        before = open_descriptors()
        with watching(real_directory, before=look), manager.batch() as batch:
            for number in range(300):
                batch.create_checkpoint(f"key-{number}", Lease("a", number))
        assert len(open_at_sync) == 301
        assert max(open_at_sync) - before < 140
        assert open_descriptors() == before


def test_a_descriptor_is_closed_once_even_if_a_batch_ends_before_its_threads(real_directory: Path) -> None:
    """A second Ctrl-C while a batch waits for its syncs: by then the number may belong to another file."""
    directory = Directory(real_directory, create=True, allow_insecure=False)
    commit = Commit(directory, Spares(directory, Quarantine(directory), allowed=False, max_bytes=1 << 20))
    step = commit._stage(Put("a", b"{}", Current.ABSENT))
    assert step
    syncing, go_on = threading.Event(), threading.Event()

    def slow(_: int) -> None:
        syncing.set()
        assert go_on.wait(20)

    with mock.patch.object(os, "fsync", slow), ThreadPoolExecutor(1) as pool:
        worker = pool.submit(commit._sync_data, step)
        assert syncing.wait(20)
        commit._clean_up()
        bystander = os.open(os.devnull, os.O_RDONLY)
        assert bystander == step.descriptor, "the kernel gives out the same number again"
        go_on.set()
        worker.result(20)
    os.close(bystander)
    directory.close()
