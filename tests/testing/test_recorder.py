"""The recorder sees what programs do, however they do it, and says so when it cannot."""

from __future__ import annotations

import io
import os
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from pyfakefs.fake_filesystem import FakeFilesystem

from checkpointmanager.testing import Crashes, UnseenChange, acknowledge, every_crash, every_fault

from .protocols import opened, sync, write

pytestmark = pytest.mark.usefixtures("kit_standing_by")


def operations(scenario: Callable[[Path], object]) -> list[str]:
    return [operation.text for operation in every_crash(scenario).operations]


def test_calls_of_os_are_seen() -> None:
    def scenario(directory: Path) -> None:
        with opened(directory, os.O_RDONLY) as folder:
            descriptor = os.open("file", os.O_RDWR | os.O_CREAT, 0o600, dir_fd=folder)
            os.write(descriptor, b"0123456789")
            os.lseek(descriptor, 2, os.SEEK_SET)
            copy = os.dup(descriptor)
            os.write(copy, b"ab")
            os.read(descriptor, 1)
            os.writev(descriptor, [b"c", b"d"])
            os.pwrite(descriptor, b"z", 9)
            os.ftruncate(descriptor, 11)
            os.fdatasync(descriptor)
            os.close(copy)
            os.close(descriptor)
            os.link("file", "other", src_dir_fd=folder, dst_dir_fd=folder)
            os.symlink("file", directory / "link")
            os.mkdir("folder", dir_fd=folder)
            os.rename("other", "folder/moved", src_dir_fd=folder, dst_dir_fd=folder)
            os.truncate(directory / "link", 5)
            os.unlink("link", dir_fd=folder)
            os.fsync(folder)
        os.remove(directory / "folder" / "moved")
        os.rmdir(directory / "folder")

    assert operations(scenario) == [
        "create file",
        "write 10 bytes at 0 to file",
        "write 2 bytes at 2 to file",
        "write 2 bytes at 5 to file",
        "write 1 bytes at 9 to file",
        "truncate file to 11",
        "fsync file",
        "link file to other",
        "symlink link to file",
        "mkdir folder",
        "rename other to folder/moved (the new name)",
        "rename other to folder/moved (the old name)",
        "truncate file to 5",
        "unlink link",
        "fsync .",
        "unlink folder/moved",
        "rmdir folder",
    ]


def test_arguments_may_be_named() -> None:
    def scenario(directory: Path) -> None:
        descriptor = os.open(path=directory / "file", flags=os.O_WRONLY | os.O_CREAT, mode=0o600)
        os.fsync(fd=descriptor)
        os.close(fd=descriptor)
        os.rename(src=directory / "file", dst=directory / "renamed")
        os.mkdir(path=directory / "folder", mode=0o700)
        os.unlink(path=directory / "renamed")
        os.close(os.open(path=os.devnull, flags=os.O_RDONLY))

    names = ["rename file to renamed", "mkdir folder", "unlink renamed"]
    assert operations(scenario) == ["create file", "fsync file", *names]


def test_bytes_that_the_kernel_moves_are_seen() -> None:
    def scenario(directory: Path) -> None:
        write(directory / "source", b"0123456789")
        with opened(directory / "source") as source, opened(directory / "target", os.O_RDWR | os.O_CREAT) as target:
            os.sendfile(target, source, 0, 2)
            os.copy_file_range(source, target, 2, 4)
            os.copy_file_range(source, target, 2, 0, 6)
            os.pwritev(target, [b"a", b"b"], 8)
            os.posix_fallocate(target, 0, 12)
            os.lseek(target, 0, os.SEEK_SET)
            os.readv(target, [bytearray(1)])
            os.write(target, b"!")

    assert operations(scenario)[3:] == [
        "create target",
        "write 2 bytes at 0 to target",
        "write 2 bytes at 2 to target",
        "write 2 bytes at 6 to target",
        "write 2 bytes at 8 to target",
        "truncate target to 12",
        "write 1 bytes at 1 to target",
    ]


def durable(scenario: Callable[[Path], object]) -> set[bytes | None]:
    """What may be in the file when the scenario is over."""

    def to_the_end(directory: Path) -> None:
        scenario(directory)
        acknowledge("the end")

    return {crash.state.image.files().get("file") for crash in every_crash(to_the_end) if crash.acknowledged}


def through(directory: Path, flags: int, *pieces: bytes) -> None:
    with opened(directory / "file", os.O_WRONLY | os.O_CREAT | flags) as descriptor:
        sync(directory)
        for piece in pieces:
            os.write(descriptor, piece)


@pytest.mark.parametrize("flags", [os.O_SYNC, os.O_DSYNC], ids=["O_SYNC", "O_DSYNC"])
def test_a_write_through_is_durable(flags: int) -> None:
    assert durable(lambda directory: through(directory, flags, b"one", b"two")) == {b"onetwo"}
    assert len(durable(lambda directory: through(directory, 0, b"one", b"two"))) > 1


def test_a_write_with_flags_of_its_own_is_refused() -> None:
    def scenario(directory: Path) -> None:
        with opened(directory / "file", os.O_WRONLY | os.O_CREAT) as descriptor:
            os.pwritev(descriptor, [b"text"], 0, os.RWF_DSYNC)

    with pytest.raises(UnseenChange, match="file changed in a way"):
        every_crash(scenario)


def test_a_write_through_makes_no_other_bytes_durable() -> None:
    def scenario(directory: Path) -> None:
        write(directory / "file", b"other", synced=False)
        through(directory, os.O_SYNC | os.O_APPEND, b"text")

    assert len(durable(scenario)) > 1


def test_a_file_without_a_name_may_get_one() -> None:
    def scenario(directory: Path) -> None:
        descriptor = os.open(directory, os.O_TMPFILE | os.O_RDWR, 0o600)
        os.write(descriptor, b"text")
        os.fsync(descriptor)
        os.link(f"/proc/self/fd/{descriptor}", directory / "file", src_dir_fd=0, follow_symlinks=True)
        os.close(descriptor)
        sync(directory)
        os.close(os.open(directory, os.O_TMPFILE | os.O_RDWR, 0o600))

    assert durable(scenario) == {b"text"}
    assert {crash.state.image.files().get("file") for crash in every_crash(scenario)} == {None, b"text"}


def test_files_of_python_are_seen() -> None:
    def scenario(directory: Path) -> None:
        (directory / "text").write_text("grüße\n", encoding="utf-8")
        with open(directory / "text", "a+", encoding="utf-8") as file:
            file.write("more")
            file.seek(0)
            assert file.read() == "grüße\nmore"
        with (directory / "text").open("r+b") as raw:
            raw.seek(2)
            raw.write(b"U")
            raw.truncate(7)
        with os.fdopen(os.open(directory / "low", os.O_WRONLY | os.O_CREAT), "wb", 0) as low:
            low.write(b"low")
        with tempfile.NamedTemporaryFile(dir=directory, delete=False) as temporary:
            temporary.write(b"temp")
        os.replace(temporary.name, directory / "named")
        shutil.copy(directory / "named", directory / "copied")
        with pytest.raises(FileExistsError):
            (directory / "named").open("x")
        with pytest.raises(ValueError, match="unbuffered"):
            (directory / "named").open("w", buffering=0)

    found = next(
        crash.state.image.files()
        for crash in every_crash(scenario)
        if len(crash.state.image.files()) == 4 and not crash.state.lost
    )
    assert found.keys() == {"text", "low", "named", "copied"}


@pytest.mark.parametrize(("flags", "synced"), [(os.O_APPEND, "fsync log"), (os.O_DSYNC, "O_SYNC log")])
def test_what_was_open_before_is_seen_as_well(flags: int, synced: str) -> None:
    def setup(directory: Path) -> int:
        return os.open(directory / "log", os.O_WRONLY | os.O_CREAT | flags)

    def scenario(descriptor: int) -> None:
        os.write(descriptor, b"line\n")
        if not flags & os.O_DSYNC:
            os.fsync(descriptor)
        os.close(descriptor)

    crashes = every_crash(scenario, setup=setup)
    assert [operation.text for operation in crashes.operations] == ["write 5 bytes at 0 to log", synced]


def test_a_file_from_outside_is_not_taken_for_synced(tmp_path: Path) -> None:
    def scenario(directory: Path) -> None:
        outside = directory.parent / f"{directory.name}-outside"
        outside.write_bytes(b"moved in")
        os.rename(outside, directory / "file")
        sync(directory)

    assert {crash.state.image.files().get("file") for crash in every_crash(scenario)} >= {b"", b"moved in", None}


CHILD = "import sys, pathlib; pathlib.Path(sys.argv[1]).write_text('by a child')"


def by_a_child(path: Path) -> None:
    subprocess.run([sys.executable, "-c", CHILD, path], check=True)


@pytest.mark.parametrize(
    "use",
    [
        lambda *_: None,
        lambda temp, file: temp.rename(file),
        lambda temp, file: file.hardlink_to(temp),
        lambda temp, _: os.unlink(temp),
        lambda temp, _: os.truncate(temp, 0),
        lambda temp, _: temp.read_bytes(),
        lambda temp, _: temp.write_bytes(b""),
        lambda temp, file: os.rename(temp, file.parent / "folder" / "file"),
    ],
    ids=["not used", "rename", "link", "unlink", "truncate", "read", "write", "rename elsewhere"],
)
def test_a_file_that_another_process_made_is_an_error(use: Callable[[Path, Path], object]) -> None:
    def scenario(directory: Path) -> None:
        (directory / "folder").mkdir()
        by_a_child(directory / "temp")
        with suppress(Exception):  # as a server does, to live on
            use(directory / "temp", directory / "file")

    with pytest.raises(UnseenChange, match="temp changed in a way"):
        every_crash(scenario)


def test_faults_refuse_what_they_cannot_make_fail() -> None:
    with pytest.raises(UnseenChange, match="foreign changed in a way"):
        list(every_fault(lambda directory: by_a_child(directory / "foreign")))
    with pytest.raises(UnseenChange, match="raw changed in a way"):
        list(every_fault(lambda directory: io.FileIO(directory / "raw", "w").close()))


def test_there_are_no_power_losses_on_pyfakefs(fs: FakeFilesystem) -> None:
    with pytest.raises(RuntimeError, match="pause pyfakefs"):
        every_crash(lambda directory: (directory / "file").write_bytes(b"unseen"))


@pytest.mark.parametrize("opener", ["open()", "os.open"])
def test_what_happens_to_a_file_that_was_moved_away_is_not_recorded(tmp_path: Path, opener: str) -> None:
    """Nor to another file outside that gets the inode of a removed one."""

    def scenario(directory: Path) -> None:
        write(directory / "file", b"text")
        os.rename(directory / "file", tmp_path / "file")
        if opener == "open()":
            with open(tmp_path / "file", "wb", buffering=0) as file:
                os.write(file.fileno(), b"outside")
        else:
            write(tmp_path / "file", b"outside")

    crashes = Crashes(lambda directory: directory, scenario, folder=str(tmp_path))
    assert [operation.text for operation in crashes.operations][3:] == ["rename file to (outside) (the old name)"]


def test_threads_are_put_in_one_order() -> None:
    def scenario(directory: Path) -> None:
        threads = [threading.Thread(target=write, args=(directory / str(n), b"x")) for n in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    assert len(operations(scenario)) == 12


def test_a_pipe_may_be_waited_for_meanwhile() -> None:
    def scenario(directory: Path) -> None:
        reading, writing = os.pipe()
        reader = threading.Thread(target=os.read, args=(reading, 1))
        reader.start()
        write(directory / "file", b"x")
        os.write(writing, b"!")
        reader.join(10)
        assert not reader.is_alive()
        os.close(reading)
        os.close(writing)

    assert operations(scenario) == ["create file", "write 1 bytes at 0 to file", "fsync file"]


def test_a_rename_of_a_file_to_its_other_name_does_nothing() -> None:
    def scenario(directory: Path) -> None:
        write(directory / "one", b"x")
        os.link(directory / "one", directory / "two")
        os.rename(directory / "one", directory / "two")

    assert operations(scenario)[-1] == "link one to two"


def test_an_acknowledgement_belongs_to_every_crash_after_it() -> None:
    def scenario(directory: Path) -> None:
        acknowledge("before")
        write(directory / "file", b"x")
        acknowledge("after")

    crashes = every_crash(scenario)
    acknowledge("outside of a scenario, which does nothing")
    assert {crash.acknowledged for crash in crashes} == {(), ("before",), ("before", "after")}


def test_what_explodes_is_bounded_and_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("checkpointmanager.testing._powerloss.MAX_CHOICES", 2**9)

    def scenario(directory: Path) -> None:
        for number in range(10):
            write(directory / str(number), b"")

    crashes = every_crash(scenario).check(lambda _: None)
    assert crashes.left_out > 2**10 - 2**9
    assert 2**8 < crashes.states < 2**10
    again = every_crash(scenario).check(lambda _: None)
    assert (again.states, again.left_out) == (crashes.states, crashes.left_out), "chosen by luck"


def test_many_half_written_files_are_bounded_and_counted() -> None:
    def scenario(directory: Path) -> None:
        for number in range(4):
            write(directory / str(number), b"some bytes", synced=False)
            sync(directory)

    crashes = every_crash(scenario).check(lambda _: None)
    assert crashes.left_out > 0
    assert crashes.states > 200
    last = [crash.state.image.files() for crash in crashes if len(crash.state.image.files()) == 4]
    arrived = {tuple(content == b"some bytes" for content in files.values()) for files in last}
    assert len(arrived) == 2**4, "each file has arrived or not, in all combinations"
