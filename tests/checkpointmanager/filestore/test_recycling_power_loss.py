"""Power cuts of a real file system under threads that recycle; and that they would show a loss if there were one."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from checkpointmanager import CheckpointManager
from checkpointmanager._filestore.directory import Directory
from tests.long import times

from .. import recycling
from ..journal import Journal
from ..processes import Child
from ..programs import update_in_threads
from ..volume import Volume, VolumeUnavailable

CUTS = times(20, 500)
CUTS_THAT_SHOW_A_LOSS = 60  # at most: the first few do
THREADS = 4


@pytest.fixture(params=["ext4", "xfs"])
def volume(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Volume]:
    try:
        volume = Volume(tmp_path, request.param)
    except VolumeUnavailable as why:
        pytest.skip(str(why))
    try:
        if not recycling.is_possible_in(volume.path):
            pytest.skip("this kernel has no leases, or cannot exchange names")
        yield volume
    finally:
        volume.unmount()


def test_no_power_cut_loses_what_was_acknowledged(volume: Volume) -> None:
    journal = Journal()
    assert [loss for cut in range(CUTS) for loss in losses_of_a_cut(volume, journal, cut)] == []
    print(f"{CUTS} power cuts, {journal.acknowledged} acknowledged updates")


def without_directory_sync() -> Any:
    return mock.patch.object(Directory, "sync")


def without_data_sync() -> Any:
    return mock.patch("checkpointmanager._filestore.commit.sync")


@pytest.mark.parametrize("bad", [without_directory_sync, without_data_sync])
def test_the_same_cuts_show_a_spare_that_is_recycled_too_early(volume: Volume, bad: Callable[[], Any]) -> None:
    journal = Journal()
    with bad():
        assert any(losses_of_a_cut(volume, journal, cut) for cut in range(CUTS_THAT_SHOW_A_LOSS))


def losses_of_a_cut(volume: Volume, journal: Journal, seed: int) -> list[str]:
    directory = volume.path / "claims"
    dice = random.Random(seed)
    with Child(partial(update_in_threads, directory, threads=THREADS, first=journal.last + 1)) as writer:
        seconds = dice.choice((0, 0.003)) * dice.random()
        journal.follow(writer, acknowledgements=dice.randrange(30, 200), seconds=seconds)
        volume.cut()
        writer.kill()
        journal.read(writer.read_to_end(), acknowledgements=False)
    volume.unmount()
    volume.mount()
    with CheckpointManager(directory) as manager:
        return journal.losses(manager)
