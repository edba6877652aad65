"""A Ctrl-C, or the end of the process, at every system call; and writes that are cut short."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable
from pathlib import Path
from unittest import mock

import pytest

from checkpointmanager import CheckpointManager

from ..damage import names, quarantined
from ..faults import Faults, Killed, Mode, injected, open_descriptors
from ..leases import LEASES, NEW, OLD, Lease, LeaseManager
from ..scenarios import CURES, WRITES, data_of
from .test_faults import leftovers

pytestmark = pytest.mark.usefixtures("no_waiting_for_the_disk")


def interrupted(faults: Faults, act: Callable[..., object], *arguments: object) -> bool:
    try:
        with injected(faults):
            act(*arguments)
    except (KeyboardInterrupt, Killed):
        assert faults.failed is not None
        return True
    assert faults.failed is None, "nothing may swallow an interrupt"
    return False


@pytest.mark.parametrize("mode", [Mode.BEFORE, Mode.AFTER])
def test_a_sharer_that_is_interrupted_at_any_call_gives_the_lock_back(tmp_path: Path, mode: Mode) -> None:
    for at in itertools.count():
        directory = tmp_path / str(at)
        faults = Faults(KeyboardInterrupt(), at, mode)
        with CheckpointManager(directory, LEASES, sharing=True, lock_timeout=0) as manager:
            manager.create_checkpoint("a", OLD)
            was_interrupted = interrupted(faults, manager.create_checkpoint, "a", NEW)
            with CheckpointManager(directory, LEASES, sharing=True, lock_timeout=0) as other:
                other.create_checkpoint("b", NEW)
            manager.create_checkpoint("a", OLD)
        if not was_interrupted:
            break
    assert at > 10


@pytest.mark.parametrize("mode", [Mode.BEFORE, Mode.AFTER])
@pytest.mark.parametrize("name", WRITES)
def test_an_interrupt_at_any_call_leaves_nothing_behind(tmp_path: Path, name: str, mode: Mode) -> None:
    scenario = WRITES[name]
    for at in itertools.count():
        directory = tmp_path / str(at)
        faults = Faults(KeyboardInterrupt(), at, mode)
        with scenario.prepare(directory) as manager:
            descriptors = open_descriptors()
            with scenario.world():
                was_interrupted = interrupted(faults, scenario.act, manager)
            if not (mode is Mode.AFTER and faults.failed and faults.failed.name == "open"):
                # An interrupt just when open returns leaves a number that nobody has seen: no Python program can
                # close it. All others are closed.
                assert open_descriptors() == descriptors
            if not (mode is Mode.BEFORE and faults.failed and faults.failed.name == "unlink"):
                assert names(directory, ".tmp-") == []
            assert data_of(manager) in (scenario.before, scenario.after)
            if was_interrupted:
                check_that_the_key_is_in_doubt(manager, scenario.after or NEW)
        with CheckpointManager(directory, LEASES) as manager:
            assert names(directory, ".tmp-") == []
            assert manager.verify().problems == {}
        if not was_interrupted:
            break
    assert at >= 4


def check_that_the_key_is_in_doubt(manager: LeaseManager, lease: Lease) -> None:
    """Whether or not the interrupted call changed the file, writing the same value again really writes it."""
    seen = manager.get_checkpoint("a").generation if "a" in manager else 0
    again = manager.create_checkpoint("a", lease)
    assert not again.unchanged
    assert again.generation > seen
    assert manager.get_checkpoint("a").data == lease


def open_and_close(directory: Path) -> None:
    CheckpointManager(directory, LEASES).close()


@pytest.mark.parametrize("new", [True, False], ids=["a new directory", "one with leftovers"])
@pytest.mark.parametrize("mode", [Mode.BEFORE, Mode.AFTER])
def test_an_interrupted_open_leaves_nothing_open_and_nothing_locked(tmp_path: Path, mode: Mode, new: bool) -> None:
    for at in itertools.count():
        directory = tmp_path / str(at) / "leases"
        if not new:
            leftovers(directory)
        descriptors = open_descriptors()
        faults = Faults(KeyboardInterrupt(), at, mode)
        was_interrupted = interrupted(faults, open_and_close, directory)
        if not (mode is Mode.AFTER and faults.failed and faults.failed.name == "open"):
            faults.failure = None  # its traceback holds the frames of the call, and they hold the directory
            assert open_descriptors() == descriptors
        with CheckpointManager(directory, LEASES) as manager:
            assert names(directory, ".tmp-") == []
            manager.create_checkpoint("a", NEW)
        if not was_interrupted:
            break
    assert at >= 10


@pytest.mark.parametrize("name", WRITES)
def test_a_kill_at_any_call_leaves_old_or_new(tmp_path: Path, name: str) -> None:
    """From one call on nothing happens any more, as after SIGKILL; another process opens the directory."""
    scenario = WRITES[name]
    for at in itertools.count():
        directory = tmp_path / str(at)
        manager = scenario.prepare(directory)
        with scenario.world():
            killed = interrupted(Faults(Killed(), at, Mode.DEAD), scenario.act, manager)
        manager.close()
        with CheckpointManager(directory, LEASES) as reopened:
            assert names(directory, ".tmp-") == []
            assert reopened.verify().problems == {}
            assert data_of(reopened) in ((scenario.before, scenario.after) if killed else (scenario.after,))
            for key in "abc":
                reopened.create_checkpoint(key, Lease("next"))
            assert names(directory, ".tmp-") == []
            assert reopened.get_checkpoint("a").data == Lease("next")
        if not killed:
            break
    assert at >= 4


@pytest.mark.parametrize("name", CURES)
def test_a_kill_at_any_call_of_a_cure_leaves_the_damaged_bytes_or_the_good_ones(tmp_path: Path, name: str) -> None:
    prepare, act, cured, _ = CURES[name]
    for at in itertools.count():
        directory = tmp_path / str(at)
        manager = prepare(directory)
        damaged = (directory / "a.json").read_bytes()
        killed = interrupted(Faults(Killed(), at, Mode.DEAD), act, manager)
        manager.close()
        now = (directory / "a.json").read_bytes()
        assert now == damaged or quarantined(directory) == [damaged]
        with CheckpointManager(directory, LEASES) as reopened:
            act(reopened)
            assert reopened.get_checkpoint("a").data == cured
        assert quarantined(directory) == [damaged]
        if not killed:
            break
    assert at >= 15


@pytest.mark.parametrize("most", [1, 7, 100])
@pytest.mark.parametrize("links", [True, False])
def test_short_writes_are_continued(real_directory: Path, most: int, links: bool) -> None:
    write = os.write
    world = mock.patch.object(os, "write", lambda descriptor, blob: write(descriptor, bytes(blob)[:most]))

    with CheckpointManager(real_directory, LEASES) as manager, world:
        manager.create_checkpoint("a", OLD)
        with WRITES["update where links are refused"].world() if not links else mock.MagicMock():
            manager.create_checkpoint("a", NEW)
        with manager.batch() as batch:
            batch.create_checkpoint("b", OLD)
            batch.create_checkpoint("c", OLD)

        assert manager.verify().intact == 3
        previous = manager.previous_checkpoint("a")
    assert previous is not None
    assert previous.data == OLD


def test_short_reads_are_continued(real_directory: Path) -> None:
    read = os.read
    with CheckpointManager(real_directory, LEASES) as manager:
        manager.create_checkpoint("a", OLD)
        with mock.patch.object(os, "read", lambda descriptor, size: read(descriptor, min(size, 7))):
            assert manager.get_checkpoint("a").data == OLD


def test_a_file_that_grows_while_it_is_read_is_not_read_beyond_the_limit(real_directory: Path) -> None:
    with CheckpointManager(real_directory, LEASES, max_bytes=1000) as manager:
        manager.create_checkpoint("a", OLD)
        endless = mock.patch.object(os, "read", lambda _, size: b"x" * min(size, 100))
        with endless:
            problems = manager.verify().problems
    assert "over the limit" in str(problems["a"])
