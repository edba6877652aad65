"""However a program holds a function of `os`, its calls are seen; where that is impossible, nothing is proved."""

from __future__ import annotations

import errno
import fcntl
import importlib
import os
import sys
import threading
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from pyfakefs.fake_filesystem import FakeFilesystem

from checkpointmanager.testing import Crash, Error, UnseenChange, acknowledge, every_crash, every_fault, watching

from . import aliases
from .aliases import WAYS, InTuple, save, save_carelessly


def check(crash: Crash) -> None:
    if crash.acknowledged:
        assert (crash.directory / "file").read_bytes() == b"new"


def folders(directory: Path) -> list[Path]:
    """One for each way."""
    made = [directory / way.replace(" ", "-") for way in WAYS]
    for folder in made:
        folder.mkdir()
    return made


def save_in_every_way(folders: list[Path]) -> None:
    for folder, sync in zip(folders, WAYS.values(), strict=True):
        save(folder, sync)


def test_a_right_agent_survives_however_it_calls_fsync() -> None:
    def check_all(crash: Crash) -> None:
        for way in list(WAYS)[: len(crash.acknowledged)]:
            assert (crash.directory / way.replace(" ", "-") / "file").read_bytes() == b"new", way

    crashes = every_crash(save_in_every_way, setup=folders).check(check_all)
    synced = [operation.text for operation in crashes.operations if operation.text.startswith("fsync")]
    assert sum(text.endswith("/temp") for text in synced) == len(WAYS)


def test_a_failing_call_is_met_however_it_is_made() -> None:
    faults = every_fault(save_in_every_way, setup=folders, errors=[errno.EIO], deaths=False)
    calls = [fault.call.name for fault in faults if fault.failure == Error(errno.EIO)]
    assert calls == ["open", "write", "fsync", "close", "replace", "open", "fsync", "close"] * len(WAYS)


def test_a_careless_agent_is_caught_though_it_imported_its_functions() -> None:
    unnoticed = [fault for fault in every_fault(save_carelessly, deaths=False) if fault.acknowledged]
    assert {"replace", "fsync"} <= {fault.call.name for fault in unnoticed}


def test_every_holder_has_the_real_function_again_afterwards() -> None:
    real = os.fsync
    assert "built-in" in repr(real)
    every_crash(lambda directory: save(directory, WAYS["os.fsync"]))
    held: list[Any] = [vars(aliases)["fsync"], vars(aliases)["sync_to_disk"], aliases.partly.func]
    held += [aliases.table["sync"], aliases.listed[0]]
    held += [aliases.InClass.sync, aliases.InClass.static, aliases.in_object.sync, aliases.in_frozen_slots.sync]
    held += [*(aliases.by_default.__defaults__ or ()), vars(sys.modules["posix"])["fsync"]]
    assert all(function is real for function in held)


def test_an_object_that_the_setup_made_is_found_every_time() -> None:
    class Agent:
        def __init__(self, directory: Path) -> None:
            self.directory = directory
            self.sync = os.fsync

    for _ in range(3):
        every_crash(lambda agent: save(agent.directory, agent.sync), setup=Agent).check(check)


def test_what_was_imported_during_a_scenario_is_seen_in_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "imported_late.py").write_text("from os import fsync\n")
    monkeypatch.syspath_prepend(tmp_path)
    for _ in range(2):
        every_crash(lambda directory: save(directory, importlib.import_module("imported_late").fsync)).check(check)
    del sys.modules["imported_late"]


def test_a_change_through_a_function_in_a_tuple_is_an_error() -> None:
    """It cannot be replaced there; but the change itself is noticed."""
    held = InTuple(os.fsync, os.replace)

    def scenario(directory: Path) -> None:
        (directory / "temp").touch()
        held.replace(directory / "temp", directory / "file")

    for every in (every_crash, every_fault):
        with pytest.raises(UnseenChange, match=r"file, .*temp changed in a way"):
            list(every(scenario))


def test_a_sync_through_a_function_in_a_tuple_counts_as_none() -> None:
    held = InTuple(os.fsync, os.replace)
    with pytest.raises(AssertionError):
        every_crash(lambda directory: save(directory, held.sync)).check(check)


@pytest.mark.parametrize("call", [os.fsync, os.rename])
def test_a_function_in_the_hands_of_pytest_is_no_error(call: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, call.__name__, call)
    every_crash(lambda directory: save(directory, WAYS["os.fsync"])).check(check)


def test_a_function_of_the_test_in_the_place_of_the_real_one_is_seen(tmp_path: Path) -> None:
    """Most often it saves the time of a real sync."""
    for stand_in in [lambda _: None, os.fstat]:
        with mock.patch.object(os, "fsync", stand_in), watching(tmp_path) as calls:
            every_crash(lambda directory: save(directory, WAYS["os.fsync"])).check(check)
            save(tmp_path, WAYS["os.fsync"])
        names = [call.name for call in calls]
        assert (names.count("fsync"), names.count("fstat")) == (2, 0)
    assert os.fsync.__name__ == "fsync"


def test_a_function_of_the_test_that_calls_the_real_one_is_seen_once() -> None:
    real = os.write
    with mock.patch.object(os, "write", lambda descriptor, data: real(descriptor, bytes(data)[:1])):
        crashes = every_crash(lambda directory: (directory / "file").write_bytes(b"abc"))
    writes = [operation.text for operation in crashes.operations if operation.text.startswith("write")]
    assert writes == [f"write 1 bytes at {offset} to file" for offset in range(3)]


def test_names_that_were_imported_are_seen_on_pyfakefs(fs: FakeFilesystem) -> None:
    real = vars(aliases)["fsync"]
    with watching("/") as calls:
        os.mkdir("/agent")
        save(Path("/agent"), WAYS["from os import fsync as sync_to_disk"])
    assert [call.name for call in calls].count("fsync") == 2
    assert vars(aliases)["fsync"] is real


def test_a_descriptor_that_fcntl_made_is_seen() -> None:
    def scenario(directory: Path) -> None:
        descriptor = os.open(directory / "file", os.O_WRONLY | os.O_CREAT)
        os.write(descriptor, b"new")
        copy = fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, 0)
        os.fsync(copy)
        os.close(copy)
        os.close(descriptor)
        folder = os.open(directory, os.O_RDONLY)
        os.fsync(folder)
        os.close(folder)
        acknowledge("new")

    every_crash(scenario).check(check)
    assert "file" in [fault.call.about.rpartition("/")[2] for fault in every_fault(scenario)]


def test_threads_that_run_meanwhile_are_not_disturbed() -> None:
    stop = threading.Event()
    failures: list[BaseException] = []

    def work() -> None:
        reading, writing = os.pipe()
        write = vars(aliases)["write"]
        while not stop.is_set():
            try:
                write(writing, b"x")
                os.read(reading, 1)
            except BaseException as error:  # noqa: BLE001
                failures.append(error)
        os.close(reading)
        os.close(writing)

    thread = threading.Thread(target=work)
    thread.start()
    try:
        for _ in range(2):
            every_crash(lambda directory: save(directory, WAYS["a class"])).check(check)
    finally:
        stop.set()
        thread.join()
    assert failures == []
