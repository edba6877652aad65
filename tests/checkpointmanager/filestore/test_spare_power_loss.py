"""Power cuts of real file systems under threads that write over spares, with proof that the cuts would show a loss.

Eight threads create, update and remove checkpoints of all sizes, some of them in transactions. The journal of the test
counts only what was acknowledged before the power was cut. First a reader looks, then the next owner.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from checkpointmanager import CheckpointManager
from checkpointmanager._filestore import FileStore, marker
from checkpointmanager._filestore.spares import Spares
from tests.long import times

from .. import spares
from ..contents import names
from ..journal import Journal
from ..processes import Child
from ..programs import change_in_threads
from ..volume import Volume, mounted

CUTS = times(15, 1000)
CUTS_THAT_SHOW_A_LOSS = 1000  # at most; usually the first few show it, but that is a matter of luck
THREADS = 8
WITH_SPARES = ["ext4", "ext4-writeback", "xfs"]


@pytest.fixture
def volume(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Volume]:
    with mounted(tmp_path, request.param) as volume:
        spares.skip_unless_possible_in(volume.path)
        yield volume


@pytest.mark.timeout(times(300, 7200))
@pytest.mark.parametrize("volume", [*WITH_SPARES, "ext4-inline"], indirect=True)
def test_no_power_cut_loses_what_was_acknowledged(volume: Volume, request: pytest.FixtureRequest) -> None:
    journal = Journal()
    waiting = 0
    for cut in range(CUTS):
        assert losses_of_a_cut(volume, journal, cut) == []
        waiting += journal.spares
    kind = request.node.callspec.params["volume"]
    print(f"{kind}: {CUTS} power cuts, {journal.acknowledged} acknowledged changes, {waiting} spares left")
    assert (waiting > 0) == (kind in WITH_SPARES), "which file systems get them"


def without_recovery() -> Any:
    return mock.patch("checkpointmanager._filestore.recover", return_value="")


def with_pending_spares() -> Any:
    """They become free as soon as their names are exchanged."""
    return mock.patch.object(Spares, "put_back", Spares._set_free)


def without_data_sync() -> Any:
    return mock.patch("checkpointmanager._filestore.commit.sync_data")


def without_transactions() -> Any:
    """The members of a transaction are written like the changes of a batch."""

    def transact(store: FileStore, puts: Any, removals: Any) -> None:
        store.commit(puts, list(removals))

    return mock.patch.object(FileStore, "transact", transact)


@pytest.mark.timeout(600)
@pytest.mark.parametrize("volume", ["ext4", "xfs"], indirect=True)
@pytest.mark.parametrize("bad", [without_recovery, with_pending_spares, without_data_sync, without_transactions])
def test_the_same_cuts_show_a_rule_that_is_broken(volume: Volume, bad: Callable[[], Any]) -> None:
    journal = Journal()
    with bad():
        assert any(losses_of_a_cut(volume, journal, cut) for cut in range(CUTS_THAT_SHOW_A_LOSS))


@pytest.mark.timeout(600)
@pytest.mark.parametrize("volume", ["ext4-inline"], indirect=True)
def test_the_same_cuts_show_that_inline_data_needs_more_than_a_data_sync(volume: Volume) -> None:
    journal = Journal()
    with mock.patch.object(marker, "is_inline", return_value=False):
        assert any(losses_of_a_cut(volume, journal, cut) for cut in range(CUTS_THAT_SHOW_A_LOSS))


@pytest.mark.parametrize("volume", ["ext4-no-journal"], indirect=True)
def test_without_a_journal_there_are_no_spares(volume: Volume) -> None:
    with CheckpointManager[Any](volume.path / "claims") as manager:
        for number in range(6):
            manager.create_checkpoint("a", number)
        assert names(volume.path / "claims", ".spare") == []


def losses_of_a_cut(volume: Volume, journal: Journal, seed: int) -> list[str]:
    directory = volume.path / "claims"
    dice = random.Random(seed)
    with Child(partial(change_in_threads, directory, threads=THREADS, first=journal.last + 1)) as writer:
        seconds = dice.choice((0, 0.003)) * dice.random()
        journal.follow(writer, acknowledgements=dice.randrange(30, 300), seconds=seconds)
        volume.cut()
        writer.kill()
        journal.read(writer.read_to_end(), acknowledgements=False)
    volume.unmount()
    volume.mount()
    journal.spares = len(names(directory, ".spare-"))
    with CheckpointManager[Any](directory, read_only=True) as reader:
        losses = journal.losses(reader)
    with CheckpointManager[Any](directory) as manager:
        return losses + journal.losses(manager)
