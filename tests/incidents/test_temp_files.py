"""Temp files that were left behind, piled up, or taken for the real thing."""

from __future__ import annotations

import errno
import os
import signal
from functools import partial
from pathlib import Path

import pytest

from checkpointmanager import CheckpointError, CheckpointManager, Event, EventKind
from checkpointmanager.testing import Call, every_fault, watching
from tests.checkpointmanager.processes import Child

from .disk import Disk
from .sandboxes import Sandbox, Sandboxes, names, opened

KILLS = 20


def write_and_die(directory: Path, call: str, _: int) -> None:
    """Dies just before the first such system call of a write, with a journal in place."""
    manager = opened(directory)
    manager.create_checkpoint("other", Sandbox("pod", ports=[os.getpid()]))

    def die(met: Call) -> None:
        if met.name == call:
            os.kill(os.getpid(), signal.SIGKILL)

    with watching(directory, before=die):
        manager.create_checkpoint("state", Sandbox("pod", ports=list(range(1000))))


def test_comfy_cli_689_killed_writers_leave_at_most_one_temp_file_for_the_next(
    real_directory: Path, events: list[Event]
) -> None:
    """Of twenty writers that were killed thirteen left a temp file, and nothing ever swept them."""
    with opened(real_directory) as manager:
        manager.create_checkpoint("state", Sandbox("pod"))
    most = left = 0
    for kill in range(KILLS):
        with Child(partial(write_and_die, real_directory, ("fdatasync", "link", "rename")[kill % 3])) as child:
            assert child.wait() == -signal.SIGKILL
        left += bool(names(real_directory, ".tmp-"))
        most = max(most, len(names(real_directory, ".tmp-")))

    assert left == KILLS, "each of them did leave one"
    assert most <= 2, "but never more than its own"
    with opened(real_directory, on_event=events.append) as manager:
        assert manager.load().checkpoints.keys() == {"other", "state"}
        assert {event.kind for event in events} == {EventKind.JOURNAL_REPLAYED, EventKind.STALE_FILES}
    assert names(real_directory, ".tmp-") == []


def test_opencodex_499_hundreds_of_old_temp_files_are_swept_when_the_directory_is_opened(directory: Path) -> None:
    """263 temp files that were no longer needed had come to 5.88 GB."""
    with opened(directory) as manager:
        manager.create_checkpoint("state", Sandbox("pod"))
    for number in range(263):
        (directory / f".tmp-{number:08x}-1").write_bytes(b"x" * 100)

    with opened(directory, read_only=True) as reader:
        assert reader.list_checkpoints() == ["state"]
        assert len(names(directory, ".tmp-")) == 263, "a reader must not clean up: a writer may be alive"
    with opened(directory) as manager:
        assert manager.get_checkpoint("state").data == Sandbox("pod")
    assert names(directory) == [".lock", "state.json"]


@pytest.mark.parametrize("name", [".tmp-0badcafe-1", ".state.json", ".Radicale.tmp-x.json", "state.json.tmp", "state~"])
def test_radicale_443_a_leftover_temp_file_is_never_loaded_as_an_item(directory: Path, name: str) -> None:
    """A temp file that a crash had left was listed, parsed and served as if it were an item."""
    with opened(directory) as manager:
        manager.create_checkpoint("state", Sandbox("pod"))
    (directory / name).write_bytes((directory / "state.json").read_bytes())  # a whole checkpoint, unluckily

    with opened(directory) as manager:
        loaded = manager.load()

    assert list(loaded.checkpoints) == ["state"]
    assert not loaded.problems


def test_scalyr_agent_1221_a_full_disk_leaves_no_temp_file(directory: Path, disk: Disk) -> None:
    """When the disk was full the unfinished temp file stayed, and made it fuller."""
    with CheckpointManager(directory) as manager:
        manager.create_checkpoint("state", "small")
        disk.fill(leaving=200)
        for _ in range(10):
            with pytest.raises(OSError, match="No space left"):
                manager.create_checkpoint("state", "x" * 1000)
        assert names(directory, ".tmp-") == []

    assert names(directory, ".tmp-") == []


def test_kubernetes_52119_no_error_path_leaves_a_temp_file() -> None:
    """The review of kubelet's atomic write found that its temp file stayed behind whenever a step failed."""

    def given(directory: Path) -> Sandboxes:
        manager = opened(directory)
        manager.create_checkpoint("state", Sandbox("pod"))
        return manager

    def overwrite(manager: Sandboxes) -> None:
        manager.create_checkpoint("state", Sandbox("other"))

    failures = every_fault(overwrite, setup=given, errors=[errno.ENOSPC], deaths=False)
    for failure in failures:
        assert isinstance(failure.error, CheckpointError | None)
        assert names(failure.directory, ".tmp-") == []
    assert failures.runs > 7, "one for each system call of the write"
