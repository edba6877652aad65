"""Failures while a spare is overwritten, and systems where spares cannot work: nothing is lost, no caller notices."""

from __future__ import annotations

import errno
import itertools
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from checkpointmanager import BatchFailed, CheckpointManager, CheckpointWriteFailed
from checkpointmanager._filestore import marker, spares
from checkpointmanager._format.envelope import open_sealed
from checkpointmanager.testing import Killed, failing, watching

from ..contents import names
from ..spares import Manager, free_in, goes_over_a_spare, previous_of, put, spares_in, with_spares

pytestmark = pytest.mark.usefixtures("kit_standing_by")


@pytest.fixture
def directory(spare_directory: Path) -> Path:
    return spare_directory


@pytest.fixture
def manager(directory: Path) -> Iterator[Manager]:
    with with_spares(directory, 3) as manager:
        yield manager


@pytest.mark.parametrize(
    ("call", "number"),
    [("write", errno.EIO), ("write", errno.ENOSPC), ("fdatasync", errno.EIO), ("exchange", errno.EIO)],
)
def test_what_failed_is_durably_gone_before_it_is_called_failed(
    manager: Manager, directory: Path, call: str, number: int
) -> None:
    """Hazard 4: it may be on the disk nevertheless, and whole."""
    before = manager.get_checkpoint("a").data
    with failing(directory, call, number) as injector, pytest.raises(CheckpointWriteFailed) as caught:
        manager.create_checkpoint("a", 3)
    assert (caught.value.errno, caught.value.in_doubt) == (number, False)
    assert manager.get_checkpoint("a").data == before
    after = [met.name for met in injector.calls if met.name != "close"]
    assert after[-2:] == ["unlink", "fsync"]
    assert not goes_over_a_spare(directory, put(manager, 4)), "the next one goes into a new file"
    assert goes_over_a_spare(directory, put(manager, 5))


@pytest.mark.parametrize("call", ["unlink", "fsync"])
def test_as_long_as_it_is_not_gone_it_is_in_doubt_and_the_next_generation_is_above_it(
    manager: Manager, directory: Path, call: str
) -> None:
    generation = manager.get_checkpoint("a").generation
    with failing(directory, "fdatasync"), failing(directory, call), pytest.raises(CheckpointWriteFailed) as caught:
        manager.create_checkpoint("a", 3)
    assert caught.value.in_doubt
    assert manager.get_checkpoint("a").generation == generation
    assert manager.create_checkpoint("a", 4).generation == generation + 2
    manager.remove_checkpoint("a")
    assert manager.create_checkpoint("a", 5).generation > generation + 2


def test_no_spare_that_was_pending_when_a_directory_sync_failed_is_used_again(
    manager: Manager, directory: Path
) -> None:
    """Hazard 6: a later sync that succeeds proves nothing."""
    for number in range(3):
        manager.create_checkpoint("a", number)
    pending = set(spares_in(directory))
    with failing(directory, "fsync", about="."), pytest.raises(CheckpointWriteFailed) as caught:
        manager.create_checkpoint("a", 3)
    assert caught.value.in_doubt
    with watching(directory) as calls:
        for number in range(20):
            manager.create_checkpoint("a", number)
    written = {call.about for call in calls if call.name == "write"}
    assert any(name.startswith(".spare-") for name in written)
    assert not pending & written
    manager.close()
    assert pending <= set(spares_in(directory)), "they are left to the next owner"
    with CheckpointManager[Any](directory) as another:
        assert another.get_checkpoint("a").data == 19
        assert names(directory, ".spare") == []


def test_a_key_in_doubt_goes_into_a_new_file(manager: Manager, directory: Path) -> None:
    manager.create_checkpoint("b", 1)
    with failing(directory, "fsync", about="."), pytest.raises(BatchFailed), manager.batch() as batch:
        batch.create_checkpoint("b", "x" * spares.SPARE_BYTES)
        batch.create_checkpoint("new", 3)
    assert not goes_over_a_spare(directory, put(manager, 4, "b"), "b")


def test_a_sync_that_fails_while_spares_are_waited_for_costs_the_spares_and_no_update(
    manager: Manager, directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spares, "SPARE_LIMIT", 3)
    for number in range(3):
        manager.create_checkpoint("a", number)
    with failing(directory, "fsync"), pytest.raises(CheckpointWriteFailed):
        manager.create_checkpoint("a", 3)
    assert manager.create_checkpoint("a", 4).data == 4
    assert free_in(manager) == 0


@pytest.mark.parametrize("after", [False, True], ids=["before the call", "after the call"])
def test_after_an_interrupt_at_any_call_the_next_write_goes_into_a_new_file(directory: Path, after: bool) -> None:
    for nth in itertools.count(1):
        folder = directory / str(nth)
        with with_spares(folder, 2) as manager:
            generation = manager.get_checkpoint("a").generation
            try:
                with failing(folder, failure=KeyboardInterrupt(), nth=nth, after=after):
                    manager.create_checkpoint("a", 2)
            except KeyboardInterrupt:
                # The first call only checks whether the lock is still ours.
                assert goes_over_a_spare(folder, put(manager, 3)) == (nth == 1)
                assert manager.get_checkpoint("a").generation > generation
                assert goes_over_a_spare(folder, put(manager, 4))
            else:
                break
        with CheckpointManager[Any](folder) as another:
            assert another.get_checkpoint("a").data == 4
    assert nth == 12


@pytest.mark.parametrize("failure", ["killed", "EIO"])
def test_a_spare_that_was_torn_is_no_damage(directory: Path, failure: str) -> None:
    write = os.write

    def half(descriptor: int, blob: bytes) -> int:
        write(descriptor, blob[: len(blob) // 2])
        raise Killed if failure == "killed" else OSError(errno.EIO, "Input/output error")

    manager = with_spares(directory)
    manager.create_checkpoint("a", "third")
    with manager.batch() as batch:
        batch.create_checkpoint("a", "last")
    with mock.patch.object(os, "write", half), pytest.raises((Killed, CheckpointWriteFailed)):
        manager.create_checkpoint("a", "torn" * 50)
    if failure == "killed":
        manager.close()
        manager = CheckpointManager(directory)
    with manager:
        assert manager.verify().problems == {}
        assert (manager.get_checkpoint("a").data, previous_of(manager)) == ("last", "third")
        manager.create_checkpoint("a", "fourth")
        assert (manager.get_checkpoint("a").data, previous_of(manager)) == ("fourth", "last")


def test_a_short_write_over_equal_padding_may_be_whole_and_is_in_doubt_until_it_is_gone(
    manager: Manager, directory: Path
) -> None:
    """Hazard 4: the bytes that were not written were there already."""
    before = manager.get_checkpoint("a").data
    write = os.write

    def all_but_the_padding(descriptor: int, blob: bytes) -> int:
        open_sealed(bytes(blob), "a")
        assert bytes(blob).rstrip(b"} \n") < bytes(blob)
        write(descriptor, bytes(blob).rstrip(b"} \n"))
        raise OSError(errno.ENOSPC, "No space left on device")

    taken = spares_in(directory)
    with mock.patch.object(os, "write", all_but_the_padding), pytest.raises(CheckpointWriteFailed) as caught:
        manager.create_checkpoint("a", 3)
    assert not caught.value.in_doubt
    assert len(spares_in(directory)) == len(taken) - 1
    assert manager.get_checkpoint("a").data == before


@pytest.mark.parametrize("number", [errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP, errno.EPERM])
def test_that_names_cannot_be_exchanged_is_found_out_once(manager: Manager, directory: Path, number: int) -> None:
    before = manager.get_checkpoint("a").data
    with failing(directory, "exchange", number, lasting=True) as injector:
        for value in (3, 4, 5):
            manager.create_checkpoint("a", value)
            assert (manager.get_checkpoint("a").data, previous_of(manager)) == (value, before)
            before = value
    assert [call.name for call in injector.calls].count("exchange") == 1
    manager.close()
    assert names(directory, ".spare") == []


@pytest.mark.parametrize("number", [errno.EINVAL, errno.EACCES, errno.ENOLCK, errno.ENOSYS])
def test_that_there_are_no_leases_is_found_out_once(manager: Manager, directory: Path, number: int) -> None:
    with failing(directory, "fcntl", number, lasting=True) as injector:
        for value in range(3, 6):
            assert not goes_over_a_spare(directory, put(manager, value))
    assert [call.name for call in injector.calls].count("fcntl") == 1
    assert (manager.get_checkpoint("a").data, previous_of(manager)) == (5, 4)


def test_an_exchange_with_the_previous_generation_that_fails_costs_only_that(manager: Manager, directory: Path) -> None:
    """Hazard 7: the update is durable and has its name; its spare is pending."""
    before = previous_of(manager)
    with failing(directory, "exchange", nth=2):
        manager.create_checkpoint("a", 3)
    assert (manager.get_checkpoint("a").data, previous_of(manager)) == (3, before)
    manager.create_checkpoint("a", 4)
    assert (manager.get_checkpoint("a").data, previous_of(manager)) == (4, 3)


def test_spares_are_given_up_when_the_disk_is_full(manager: Manager, directory: Path) -> None:
    """They may take up the missing space, so a write that needs a new file is tried once more."""
    with failing(directory, "write", errno.ENOSPC) as injector:
        manager.create_checkpoint("new", 1)
    assert [call.name for call in injector.calls].count("write") == 2
    assert names(directory, ".spare-") == []
    assert manager.get_checkpoint("new").data == 1
    assert manager.create_checkpoint("a", 5).data == 5


def test_where_data_is_kept_in_inodes_there_are_no_spares(directory: Path) -> None:
    """Hazard 9: on such a file system fdatasync is not enough."""
    with mock.patch.object(marker, "is_inline", return_value=True), CheckpointManager[Any](directory) as manager:
        for number in range(6):
            manager.create_checkpoint("a", number)
        assert names(directory, ".spare") == []
        assert names(directory, ".tmp-") == []
