"""Limits of a process, as an administrator sets them: the size of a file, and how many may be open. No root needed."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from pathlib import Path

import pytest

from checkpointmanager import BatchFailed, CheckpointUnreadable, CheckpointWriteFailed

from ..checkpointmanager.processes import Agent
from .agent import CHANGES, KEYS, NEW, OLD, error_of, found_in
from .agent import victim as new_victim

BEFORE = dict.fromkeys(KEYS, OLD)


@pytest.fixture(scope="module")
def victim() -> Iterator[Agent]:
    with new_victim() as victim:
        yield victim


@pytest.fixture
def directory(tmp_path: Path, victim: Agent) -> Iterator[Path]:
    """Owned by the victim; each change has been made once, so that Python has loaded all lazy imports."""
    directory = tmp_path / "claims"
    victim.ask("open", directory)
    for change in CHANGES:
        victim.ask("reset")
        victim.ask("change", change)
    victim.ask("reset")
    yield directory
    victim.ask("close")


@pytest.mark.parametrize("size", [0, 1, 1000])
def test_a_write_that_is_cut_short_by_the_limit_of_file_sizes_changes_nothing(
    victim: Agent, directory: Path, size: int
) -> None:
    """The kernel writes as many bytes as it may, and refuses the rest."""
    victim.ask("limit_file_size", size)
    for change in ("create", "overwrite", "update", "batch"):
        with pytest.raises(CheckpointWriteFailed, match="File too large") as failure:
            victim.ask("change", change)
        assert (failure.value.errno, failure.value.in_doubt) == (errno.EFBIG, False)
        assert found_in(directory) == BEFORE
    assert not [path for path in directory.iterdir() if path.name.startswith(".tmp-")]

    victim.ask("limit_file_size", -1)

    victim.ask("change", "batch")
    assert found_in(directory) == dict.fromkeys(KEYS, NEW)


def test_without_a_descriptor_left_nothing_is_changed_and_nothing_is_called_damaged(
    victim: Agent, directory: Path
) -> None:
    victim.ask("use_up_descriptors", 0)
    for change in ("create", "overwrite", "batch"):
        with pytest.raises(CheckpointWriteFailed, match="Too many open files") as failure:
            victim.ask("change", change)
        assert (failure.value.errno, failure.value.in_doubt) == (errno.EMFILE, False)
    with pytest.raises(CheckpointUnreadable) as unreadable:
        victim.ask("get", "a")
    assert (unreadable.value.reason, unreadable.value.errno) == ("unreadable", errno.EMFILE)
    assert found_in(directory) == BEFORE
    assert not (directory / ".quarantine").exists()

    victim.ask("give_back_descriptors", victim.ask("used_descriptors"))

    assert victim.ask("get", "a") == OLD
    victim.ask("change", "batch")
    assert found_in(directory) == dict.fromkeys(KEYS, NEW)


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("spare", [1, 2, 3])
def test_with_few_descriptors_left_a_change_happens_or_does_not(
    victim: Agent, directory: Path, change: str, spare: int
) -> None:
    victim.ask("use_up_descriptors", spare)
    if error := error_of(victim, change):
        assert (error.errno, error.in_doubt) == (errno.EMFILE, False)
        failed = error.failures if isinstance(error, BatchFailed) else BEFORE
        left = found_in(directory)
        assert {key: left[key] for key in failed} == dict.fromkeys(failed, OLD)
    victim.ask("give_back_descriptors", victim.ask("used_descriptors"))
    victim.ask("change", change)
    assert found_in(directory).get("a") == (None if change == "remove" else OLD if change == "create" else NEW)
