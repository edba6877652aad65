"""What `watching` shows of the system calls, and every way to make one call fail."""

from __future__ import annotations

import errno
import fcntl
import os
from pathlib import Path

import pytest

from checkpointmanager import CheckpointError, CheckpointManager, CheckpointWriteFailed
from checkpointmanager.testing import Call, acknowledge, every_crash, failing, watching

pytestmark = pytest.mark.usefixtures("kit_standing_by")


def save(path: Path, text: str = "text") -> None:
    """A correct writer."""
    temporary = path.with_name("temp")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT)
    try:
        os.write(descriptor, text.encode())
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    os.rename(temporary, path)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


NAMES = ["open", "write", "fsync", "close", "rename", "open", "fsync", "close"]


@pytest.mark.parametrize("faked", [False, True], ids=["disk", "pyfakefs"])
def test_the_calls_are_listed_with_what_they_are_about(
    tmp_path: Path, faked: bool, request: pytest.FixtureRequest
) -> None:
    if faked:
        request.getfixturevalue("fs").create_dir(tmp_path)
    with watching(tmp_path) as calls:
        save(tmp_path / "file")
        Path(tmp_path.parent, "outside").touch()
    temporary, file = tmp_path / "temp", tmp_path / "file"
    assert [call.name for call in calls] == NAMES
    assert calls[1] == Call("write", str(temporary))
    assert str(calls[4]) == f"rename {temporary} {file}"


def test_a_descriptor_that_was_open_before_has_its_name(tmp_path: Path) -> None:
    with open(tmp_path / "file", "wb", buffering=0) as file, watching(tmp_path) as calls:
        os.write(file.fileno(), b"text")
    assert calls == [Call("write", "file")]


def test_a_directory_that_is_not_there_yet_can_be_watched(tmp_path: Path) -> None:
    with watching(tmp_path / "new") as calls:
        (tmp_path / "new").mkdir()
    assert [call.name for call in calls] == ["mkdir"]


def test_a_directory_behind_a_link_is_the_same_directory(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    with watching(tmp_path / "link") as calls:
        (tmp_path / "real" / "a").mkdir()
        (tmp_path / "link" / "b").mkdir()
    assert [call.name for call in calls] == ["mkdir", "mkdir"]


def test_a_callback_may_run_before_and_after_each_call(tmp_path: Path) -> None:
    seen: list[tuple[str, bool]] = []

    def look(call: Call) -> None:
        if call.name == "rename":
            seen.append((call.name, (tmp_path / "file").exists()))

    with watching(tmp_path, before=look, after=look) as calls:
        save(tmp_path / "file")
    assert [call.name for call in calls] == NAMES, "calls made by the callbacks are not recorded"
    assert seen == [("rename", False), ("rename", True)]


def test_a_call_may_fail_with_any_exception(tmp_path: Path) -> None:
    interrupt = KeyboardInterrupt()
    with pytest.raises(KeyboardInterrupt) as caught, failing(tmp_path, "rename", interrupt) as failure:
        save(tmp_path / "file")
    assert caught.value is interrupt
    assert failure.failed == failure.calls[-1]
    assert os.listdir(tmp_path) == ["temp"], "the call was not made"


def test_a_failure_may_come_when_the_call_was_made(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="Input/output error"), failing(tmp_path, "rename", errno.EIO, after=True):
        (tmp_path.parent / "outside").touch()
        (tmp_path.parent / "outside").rename(tmp_path.parent / "renamed")
        save(tmp_path / "file")
    assert os.listdir(tmp_path) == ["file"]


def test_the_nth_of_all_calls_fails(tmp_path: Path) -> None:
    failed = []
    for nth in range(1, len(NAMES) + 1):
        with pytest.raises(OSError, match="No space"), failing(tmp_path, failure=errno.ENOSPC, nth=nth) as failure:
            save(tmp_path / "file")
        assert failure.failed
        failed.append(failure.failed.name)
    with failing(tmp_path, nth=len(NAMES) + 1) as none:
        save(tmp_path / "file")
    assert failed == NAMES
    assert none.failed is None


def test_a_call_is_chosen_by_what_it_is_about(tmp_path: Path) -> None:
    save(tmp_path / "good")
    with failing(tmp_path, "rename", about="bad"):
        for harmless in ("good", "badly", "not-bad"):
            save(tmp_path / harmless)
        with pytest.raises(OSError, match="Input/output error"):
            save(tmp_path / "bad")


def test_the_sync_of_the_directory_itself_is_chosen_by_a_dot(tmp_path: Path) -> None:
    with CheckpointManager(tmp_path) as manager:
        with failing(tmp_path, "fsync", about=".") as injector, pytest.raises(CheckpointWriteFailed):
            manager.create_checkpoint("a", 1)
        assert injector.failed == Call("fsync", ".")


def test_a_call_that_does_not_exist_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"no call is named 'nonsense'; the calls that can fail are open, close"):
        failing(tmp_path, "nonsense").__enter__()


def test_a_reader_looks_again_so_only_a_lasting_failure_reaches_it(tmp_path: Path) -> None:
    with CheckpointManager(tmp_path) as manager:
        manager.create_checkpoint("a", 1)
    with CheckpointManager(tmp_path, read_only=True) as reader:
        with failing(tmp_path, "read", errno.EIO) as once:
            assert reader.get_checkpoint("a").data == 1
        assert once.failed
        with failing(tmp_path, "read", errno.EIO, lasting=True), pytest.raises(CheckpointError):
            reader.get_checkpoint("a")


def test_a_lock_may_be_refused(tmp_path: Path) -> None:
    descriptor = os.open(tmp_path / "lock", os.O_RDWR | os.O_CREAT)
    with watching(tmp_path) as calls, failing(tmp_path, "flock", errno.ENOLCK):
        with pytest.raises(OSError, match="No locks"):
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        fcntl.flock(descriptor, fcntl.LOCK_EX)
    os.close(descriptor)
    assert calls == [Call("flock", "lock")], "the refused call never came so far"


def test_a_copy_of_a_descriptor_has_the_name_of_its_file(tmp_path: Path) -> None:
    with watching(tmp_path) as calls:
        descriptor = os.open(tmp_path / "file", os.O_WRONLY | os.O_CREAT)
        copy = os.dup(descriptor)
        os.close(descriptor)
        os.write(copy, b"text")
        os.close(copy)
    assert calls[-2:] == [Call(name, str(tmp_path / "file")) for name in ("write", "close")]


def test_a_lasting_failure_does_not_end(tmp_path: Path) -> None:
    with failing(tmp_path, "write", errno.ENOSPC, nth=2, lasting=True):
        save(tmp_path / "file")
        for _ in range(3):
            with pytest.raises(OSError, match="No space"):
                save(tmp_path / "file")
    save(tmp_path / "file")


def test_a_sync_that_is_repeated_after_it_failed_is_noted(tmp_path: Path) -> None:
    descriptor = os.open(tmp_path / "file", os.O_WRONLY | os.O_CREAT)
    with failing(tmp_path, "fsync") as failure:
        with pytest.raises(OSError, match="Input/output error"):
            os.fsync(descriptor)
        assert failure.repeated_syncs == []
        os.fsync(descriptor)
        os.close(descriptor)
        save(tmp_path / "another")
    assert failure.repeated_syncs == [Call("fsync", "file")]


def test_an_interrupt_before_a_sync_is_no_failed_sync() -> None:
    """The call never reached the kernel, so a later sync makes durable what this one would have."""

    def interrupted(directory: Path) -> None:
        descriptor = os.open(directory / "file", os.O_WRONLY | os.O_CREAT)
        os.write(descriptor, b"text")
        with pytest.raises(KeyboardInterrupt), failing(directory, "fsync", KeyboardInterrupt()):
            os.fsync(descriptor)
        os.fsync(descriptor)
        os.close(descriptor)
        folder = os.open(directory, os.O_RDONLY)
        os.fsync(folder)
        os.close(folder)
        acknowledge("text")

    found = [(crash.directory / "file").read_bytes() for crash in every_crash(interrupted) if crash.acknowledged]
    assert found == [b"text"]
