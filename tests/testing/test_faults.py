"""The injector makes every call fail once, always removes itself, and a death stops everything."""

from __future__ import annotations

import errno
import gc
import itertools
import os
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from pyfakefs.fake_filesystem import FakeFilesystem

from checkpointmanager import CheckpointManager, CheckpointWriteFailed
from checkpointmanager.testing import (
    Death,
    Error,
    Fault,
    Interruption,
    Killed,
    ShortWrite,
    acknowledge,
    dying,
    every_fault,
    failing,
    watching,
)

pytestmark = pytest.mark.usefixtures("kit_standing_by")


def two_generations(directory: Path) -> CheckpointManager[Any]:
    manager = CheckpointManager(directory)
    manager.create_checkpoint("a", 0)
    manager.create_checkpoint("a", 1)
    return manager


def write(manager: CheckpointManager[Any]) -> None:
    manager.create_checkpoint("a", 2)
    acknowledge(2)


def check(fault: Fault) -> None:
    with CheckpointManager(fault.directory) as manager:
        found = manager.get_checkpoint("a").data
        assert found == 2 if fault.acknowledged else found in (1, 2)
        assert not [name for name in os.listdir(fault.directory) if name.startswith(".tmp-")]


@pytest.fixture
def calls(tmp_path: Path) -> list[str]:
    """The names of the calls of one write."""
    with two_generations(tmp_path / "claims") as manager, watching(tmp_path) as calls:
        write(manager)
    return [call.name for call in calls]


def test_every_call_of_a_write_fails_once_with_every_error(calls: list[str]) -> None:
    faults = every_fault(write, setup=two_generations).check(check)
    assert [fault.call.name for fault in faults if fault.failure == Error(errno.EIO)] == calls
    assert faults.runs == len(calls) * 6 + calls.count("write")  # five errors and death, and writes that are short


def committed(fault: Fault) -> bool:
    """The names change after the commit, so a failure there is no failure of the write."""
    return fault.call.name in ("link", "rename", "unlink")


def test_what_the_scenario_raised_is_reported() -> None:
    for fault in every_fault(write, setup=two_generations, errors=[errno.EIO], deaths=False):
        if isinstance(fault.failure, ShortWrite) or committed(fault):
            assert (fault.error, fault.acknowledged) == (None, (2,))
            continue
        assert isinstance(fault.error, CheckpointWriteFailed)
        assert fault.error.errno == errno.EIO
        assert f"EIO at: {fault.call}" in str(fault)


def test_every_call_of_a_write_is_interrupted_before_and_after(calls: list[str]) -> None:
    faults = [*every_fault(write, setup=two_generations, errors=(), deaths=False, interrupts=True)]
    for after in (False, True):
        interrupted = [f for f in faults if isinstance(f.failure, Interruption) and f.failure.after == after]
        assert [fault.call.name for fault in interrupted] == calls
        assert all(isinstance(fault.error, KeyboardInterrupt) for fault in interrupted)


def from_two_threads(directory: Path) -> None:
    """Each thread makes a folder and then acknowledges it, or ends with the error that the call raised."""

    def make(name: str) -> None:
        with suppress(OSError, KeyboardInterrupt):
            (directory / name).mkdir()
            acknowledge(name)

    threads = [threading.Thread(target=make, args=(name,)) for name in ("a", "b")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def test_the_calls_of_all_threads_fail_in_turn() -> None:
    faults = every_fault(from_two_threads, errors=[errno.EIO], interrupts=True)
    for fault in faults:
        made = set(os.listdir(fault.directory))
        assert set(fault.acknowledged) <= made, str(fault)
        assert len(fault.acknowledged) <= 1
    assert faults.runs == 2 * 4  # EIO, an interrupt before and after, and a death; each thread makes one call


def test_the_collections_after_a_death_walk_only_what_is_new() -> None:
    gc.unfreeze()  # conftest.py has done the same for all tests
    try:
        frozen = {gc.get_freeze_count() > 1000 for fault in every_fault(write, setup=two_generations, errors=())}
        assert frozen == {False, True}  # the short write, the deaths
        assert gc.get_freeze_count() == 0
    finally:
        gc.freeze()


def test_it_works_on_pyfakefs(fs: FakeFilesystem) -> None:
    assert every_fault(write, setup=two_generations, errors=[errno.EIO]).check(check).runs >= 19


def test_the_dead_leave_what_they_left() -> None:
    """Neither `finally` nor a finalizer changes the directory after the process has died."""

    def unclean(directory: Path) -> None:
        path = directory / "temp"
        try:
            with open(path, "wb") as file:
                file.write(b"half")
                file.flush()
                os.fsync(file.fileno())
        finally:
            path.unlink(missing_ok=True)

    left = [sorted(os.listdir(fault.directory)) for fault in every_fault(unclean, errors=())]
    assert ["temp"] in left


def test_a_death_that_the_program_swallows_stays_one() -> None:
    def stubborn(directory: Path) -> None:
        for name in ("one", "two"):
            try:
                (directory / name).mkdir()
            except BaseException:  # noqa: BLE001
                continue

    faults = every_fault(stubborn, errors=())
    left = [os.listdir(fault.directory) for fault in faults if isinstance(fault.failure, Death)]
    assert left == [[], ["one"]]


def test_the_locks_of_the_dead_are_free(tmp_path: Path) -> None:
    def die(nth: int) -> bool:
        with dying(tmp_path, nth=nth) as injector, CheckpointManager(tmp_path / "claims") as manager:
            manager.create_checkpoint("a", nth)
        with CheckpointManager(tmp_path / "claims") as manager:
            manager.create_checkpoint("a", 0)
        return injector.dead

    deaths = 0
    while die(deaths + 1):
        deaths += 1
    assert deaths > 20


def test_everything_is_as_before_afterwards(tmp_path: Path) -> None:
    before = {name: getattr(os, name) for name in dir(os)}
    groups = [set(group) for group in (os.supports_dir_fd, os.supports_fd, os.supports_follow_symlinks)]
    with pytest.raises(OSError, match="Input/output error"), failing(tmp_path, "open"):
        (tmp_path / "file").write_text("")
    with dying(tmp_path, nth=1):
        (tmp_path / "file").write_text("")
    assert {name: getattr(os, name) for name in dir(os)} == before
    assert [os.supports_dir_fd, os.supports_fd, os.supports_follow_symlinks] == groups


def test_a_scenario_that_fails_by_itself_is_not_hidden() -> None:
    def broken(_: Path) -> None:
        raise ValueError("a bug of the test")

    with pytest.raises(ValueError, match="a bug of the test"):
        list(every_fault(broken))


def test_a_death_in_another_thread_is_a_death_of_all(tmp_path: Path) -> None:
    def touch(name: str) -> bool:
        (tmp_path / name).touch()
        return True

    with dying(tmp_path, nth=1), ThreadPoolExecutor(2) as pool:
        calls: list[Callable[[], Any]] = [pool.submit(touch, name).result for name in ("a", "b")]
        for call in calls:
            with pytest.raises(Killed):
                call()
        raise Killed
    assert os.listdir(tmp_path) == []


class WithFinalizer:
    """Releases what it holds when it is collected, with calls that a dead process no longer makes."""

    def __init__(self, directory: Path) -> None:
        self.path = directory / "file"
        self.descriptor = os.open(self.path, os.O_WRONLY | os.O_CREAT)

    def __del__(self) -> None:
        os.close(self.descriptor)
        os.unlink(self.path)


def dropped(directory: Path) -> None:
    WithFinalizer(directory)
    gc.collect()


def threaded(directory: Path) -> None:
    thread = threading.Thread(target=(directory / "folder").mkdir)
    thread.start()
    thread.join()


@pytest.mark.parametrize(("scenario", "left"), [(dropped, [[], ["file"], ["file"]]), (threaded, [[]])])
def test_a_death_in_a_finalizer_or_thread_is_not_reported(
    scenario: Callable[[Path], None], left: list[list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    heard: list[Any] = []
    monkeypatch.setattr(sys, "unraisablehook", heard.append)
    monkeypatch.setattr(threading, "excepthook", heard.append)
    assert [os.listdir(fault.directory) for fault in every_fault(scenario, errors=())] == left
    gc.collect()
    assert heard == []


def test_another_error_in_a_finalizer_is_reported(tmp_path: Path) -> None:
    class Broken:
        def __del__(self) -> None:
            raise ValueError("a bug of the agent")

    heard: list[Any] = []
    with mock.patch.object(sys, "unraisablehook", heard.append), failing(tmp_path):
        Broken()
        gc.collect()
    assert [type(unraisable.exc_value) for unraisable in heard] == [ValueError]


def test_a_death_in_a_finalizer_frees_the_lock_as_well(tmp_path: Path) -> None:
    """No exception leaves a finalizer, so the scenario ends as if the process had lived."""
    for nth in itertools.count(1):
        directory = tmp_path / str(nth)
        with dying(directory, nth=nth) as death:
            CheckpointManager(directory)  # given up at once: its finalizers close the lock and the directory
        gc.collect()
        CheckpointManager(directory).close()
        if not death.dead:
            break
    assert nth > 10
