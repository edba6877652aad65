"""Durable when it returns: by the order of the system calls, and by cutting the power of a real file system."""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, Literal
from unittest import mock

import pytest

from checkpointmanager import CheckpointManager
from checkpointmanager.testing import watching

from ..journal import Journal
from ..processes import Child
from ..programs import write_without_end
from ..volume import Volume, mounted

CUTS = 20
CUTS_THAT_SHOW_A_LOSS = 60  # at most; usually the first few show it

Manager = CheckpointManager[Any]
Durability = Literal["full", "atomic"]


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return tmp_path / "claims"


@pytest.fixture
def volume(tmp_path: Path) -> Iterator[Volume]:
    with mounted(tmp_path) as volume:
        yield volume


def _batch(manager: Manager) -> None:
    with manager.batch() as batch:
        for key in ("claim", "other", "new"):
            batch.create_checkpoint(key, "after")


CHANGES: dict[str, tuple[Callable[[Manager], object], int]] = {  # and how many files it writes
    "create": (lambda manager: manager.create_checkpoint("new", "after"), 1),
    "overwrite": (lambda manager: manager.create_checkpoint("claim", "after"), 1),
    "update": (lambda manager: manager.update_checkpoint("claim", lambda _: "after"), 1),
    "remove": (lambda manager: manager.remove_checkpoint("claim"), 0),
    "batch": (_batch, 3),
}
each_change = pytest.mark.parametrize(("change", "files"), CHANGES.values(), ids=CHANGES)


def _calls_of(directory: Path, change: Callable[[Manager], object], durability: Durability = "full") -> list[str]:
    """The completed calls of one change, in order, each with the names that it concerns."""
    calls: list[str] = []
    with CheckpointManager(directory, durability=durability) as manager:
        manager.create_checkpoint("claim", "before")
        manager.create_checkpoint("other", "before")
        with watching(directory, after=lambda call: calls.append(str(call))):
            change(manager)
            calls.append("return")
    return calls


def _commits(calls: list[str]) -> dict[str, int]:
    """Each file that got its final name: the temp file's name and the index of the rename."""
    renames = [(call.split(), place) for place, call in enumerate(calls) if call.startswith("rename ")]
    return {words[1]: place for words, place in renames if words[2].endswith(".json")}


@each_change
@pytest.mark.parametrize("durability", ["full", "atomic"])
def test_data_is_synced_before_any_name_points_to_it(
    directory: Path, change: Callable[[Manager], object], files: int, durability: Durability
) -> None:
    calls = _calls_of(directory, change, durability)
    commits = _commits(calls)
    assert len(commits) == files
    for temp, renamed in commits.items():
        written = max(place for place, call in enumerate(calls) if call == f"write {temp}")
        assert written < calls.index(f"fsync {temp}") < renamed


@each_change
def test_names_are_synced_after_the_last_change_and_before_it_is_acknowledged(
    directory: Path, change: Callable[[Manager], object], files: int
) -> None:
    calls = _calls_of(directory, change)
    # A removed file has a temp name by then, and whether that name survives does not matter.
    named = [(place, call) for place, call in enumerate(calls) if not call.startswith("unlink .tmp-")]
    changes = [place for place, call in named if call.split()[0] in ("rename", "unlink", "link")]
    synced = max(place for place, call in enumerate(calls) if call == "fsync .")
    assert len(changes) >= files
    assert max(changes) < synced < calls.index("return")


@each_change
def test_atomic_durability_leaves_out_the_directory_sync_and_nothing_else(
    directory: Path, change: Callable[[Manager], object], files: int
) -> None:
    syncs = [call for call in _calls_of(directory, change, "atomic") if call.startswith("fsync ")]
    assert len(syncs) == files
    assert "fsync ." not in syncs


def test_a_directory_is_synced_before_anything_in_it_is_served(directory: Path) -> None:
    CheckpointManager(directory).close()
    (directory / ".tmp-left").touch()
    (directory / ".previous-gone").touch()
    calls: list[str] = []
    with watching(directory, after=lambda call: calls.append(str(call))), CheckpointManager(directory):
        calls.append("return")
    renamed = next(place for place, call in enumerate(calls) if call.startswith("rename .previous-gone .tmp-"))
    swept = [calls.index("unlink .tmp-left"), renamed]
    synced = max(place for place, call in enumerate(calls) if call == f"fsync {directory}")
    assert max(swept) < synced < calls.index("return")


@pytest.mark.parametrize("options", [{}, {"sharing": True}], ids=["owner", "sharer"])
def test_no_power_cut_loses_what_was_acknowledged(volume: Volume, options: dict[str, bool]) -> None:
    journal = Journal()
    assert [loss for cut in range(CUTS) for loss in _losses_of_a_cut(volume, journal, cut, options)] == []


def _sync_only_directories(sync: Callable[[int], None], descriptor: int) -> None:
    if Path(f"/proc/self/fd/{descriptor}").is_dir():
        sync(descriptor)


def _sync_nothing(_: Callable[[int], None], __: int) -> None:
    pass


@pytest.mark.parametrize(
    ("sync", "options"),
    [(_sync_nothing, {}), (_sync_only_directories, {}), (None, {"durability": "atomic"})],
    ids=["no sync at all", "no data sync", "no directory sync"],
)
def test_the_same_cuts_do_lose_something_where_syncs_are_left_out(
    volume: Volume, sync: Callable[[Callable[[int], None], int], None] | None, options: dict[str, str]
) -> None:
    journal = Journal()
    with mock.patch.object(os, "fsync", partial(sync, os.fsync) if sync else os.fsync):
        losses = (_losses_of_a_cut(volume, journal, cut, options) for cut in range(CUTS_THAT_SHOW_A_LOSS))
        assert any(losses)


def _losses_of_a_cut(volume: Volume, journal: Journal, seed: int, options: dict[str, Any]) -> list[str]:
    """Cut the power under a writer, bring it back, and compare what is found with what was acknowledged before."""
    directory = volume.path / "claims"
    dice = random.Random(seed)
    with Child(partial(write_without_end, directory, seed=seed, first=journal.last + 1, **options)) as writer:
        journal.follow(writer, acknowledgements=dice.randrange(1, 40), seconds=dice.choice((0, 0.003)) * dice.random())
        volume.cut()
        writer.kill()
        journal.read(writer.read_to_end(), acknowledgements=False)
    volume.unmount()
    volume.mount()
    with CheckpointManager(directory) as manager:
        return journal.losses(manager)
