"""Whatever path it gets, it answers: no hang, no traceback, no step outside."""

from __future__ import annotations

import ctypes
import itertools
import os
import socket
import stat
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from checkpoint_verify.findings import disk
from checkpoint_verify.findings.finding import State
from checkpoint_verify.findings.scan import Scan
from checkpointmanager.testing import damage

from .command import called, checkpoint_verify
from .state import make, snapshot

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can make device nodes")


def reasons(*words: object) -> dict[str, str]:
    return {problem["key"]: problem["reason"] for problem in called("--json", *words).document["problems"]}


def test_a_fifo_a_socket_a_folder_and_a_link_in_a_checkpoint_s_place_are_named_and_not_waited_for(
    directory: Path,
) -> None:
    os.mkfifo(directory / "fifo.json")
    (directory / "folder.json").mkdir()
    (directory / "link.json").symlink_to("/etc/passwd")
    with socket.socket(socket.AF_UNIX) as listener:
        os.chdir(directory)  # the path of a socket must be short
        listener.bind("socket.json")
        os.chdir("/")

        assert reasons(directory) == dict.fromkeys(("fifo", "folder", "link", "socket"), "not-a-file")


@pytest.mark.timeout(20)
def test_a_fifo_that_takes_a_file_s_place_just_before_it_is_opened_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    os.mkfifo(tmp_path / "fifo")
    before = os.stat(tmp_path / "file")
    monkeypatch.setattr(os, "stat", lambda *_, **__: before)

    with pytest.raises(disk.NotAFile, match="FIFO"):
        disk.look(str(tmp_path / "fifo"))


@pytest.mark.parametrize("command", ["verify", "show", "diagnose", "list"])
def test_a_fifo_named_on_the_command_line_is_not_waited_for(tmp_path: Path, command: str) -> None:
    os.mkfifo(tmp_path / "fifo")

    assert called(command, tmp_path / "fifo").code == 1


@as_root
def test_a_device_is_not_opened(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    os.mknod(directory / "device.json", stat.S_IFCHR | 0o600, os.makedev(1, 3))
    opened: list[object] = []
    real = os.open

    def watched(path: str, *arguments: Any, **options: Any) -> int:
        opened.append(path)
        return real(path, *arguments, **options)

    monkeypatch.setattr(os, "open", watched)

    found = called("--json", directory).document["problems"]
    by_path = called("--json", directory / "device.json").document["problems"]

    assert [problem["reason"] for problem in (*found, *by_path)] == ["not-a-file", "not-a-file"]
    assert not [path for path in opened if str(path).endswith("device.json")]
    assert called("/dev/zero").code == 1


def test_names_that_are_no_utf8_or_hold_commands_for_the_terminal_are_escaped(directory: Path) -> None:
    for name in (b"\xff\xfe.json", b"\x1b[31mred\n.json"):
        with open(os.fsencode(directory) + b"/" + name, "wb") as file:
            file.write(b"half")

    listed = called(directory)
    named = called(os.fsdecode(os.fsencode(directory) + b"/\xff\xfe.json"))
    document = called("--json", os.fsdecode(os.fsencode(directory) + b"/\xff\xfe.json")).document

    assert listed.code == 0  # they are no keys, so they belong to another program
    assert "other files  2" in listed.out
    assert named.code == 1
    assert "\\xff\\xfe.json" in named.out
    assert "diagnose $'" in named.out
    assert document["paths"][0]["path"].endswith("\\xff\\xfe.json")
    assert document["paths"][0]["path_base64"]


def test_a_non_utf8_directory_is_verified_listed_and_repaired(tmp_path: Path) -> None:
    directory = Path(os.fsdecode(os.fsencode(tmp_path) + b"/caf\xe9"))
    make(directory)
    damage.flip_bit(directory, "claim-1")

    for words in (("verify",), ("list",), ("diagnose", "-d"), ("show", "-d")):
        target = ["claim-1"] if "-d" in words else []
        assert called(*words, directory, *target).code == 1
    # In a separate process: the library's log contains the name, which xdist cannot pass on.
    assert checkpoint_verify("repair", "--all", "--yes", directory).code == 0
    assert called(directory).code == 0


def test_a_directory_may_be_named_through_a_link_but_repair_wants_the_real_path(
    directory: Path, tmp_path: Path
) -> None:
    (tmp_path / "link").symlink_to(directory)
    damage.flip_bit(directory, "claim-1")
    before = snapshot(directory)

    assert called(tmp_path / "link").code == 1
    refused = called("repair", "--all", "--yes", tmp_path / "link")

    assert refused.code == 2
    assert str(directory) in refused.err
    assert snapshot(directory) == before


def test_a_directory_that_is_replaced_by_a_link_meanwhile_is_still_the_one_that_was_opened(
    directory: Path, tmp_path: Path
) -> None:
    decoy = make(tmp_path / "decoy")
    damage.flip_bit(decoy, "claim-3")

    found = Scan(str(directory)).findings()
    first = next(found)
    directory.rename(tmp_path / "moved")
    directory.symlink_to(decoy)
    rest = list(found)

    assert {one.state for one in (first, *rest)} == {State.GOOD}
    assert len(rest) == 3


def test_quarantine_and_device_plugins_behind_a_link_are_left_out_and_said_so(directory: Path, tmp_path: Path) -> None:
    kubelet = tmp_path / "kubelet"
    kubelet.mkdir()
    (kubelet / "device-plugins").symlink_to(directory)
    (directory / ".quarantine").symlink_to("/etc")

    assert "was not checked" in called(kubelet).out
    assert "could not be counted" in called(directory).out


def test_a_file_that_is_different_at_each_look_is_not_called_damaged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "busy.json"
    numbers = itertools.count()
    real = disk.look

    def look(*arguments: Any) -> disk.Look:
        path.write_bytes(b'{"checksum":"xxh3:%016x",' % next(numbers))
        return real(*arguments)

    path.write_bytes(b"")
    monkeypatch.setattr(disk, "look", look)

    ended = called("--json", path)

    assert ended.code == 3
    assert [problem["detail"] for problem in ended.document["problems"]] == ["it changes while it is read"]


def test_a_file_that_is_good_at_the_second_look_is_good(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = directory / "claim-1.json"
    good = path.read_bytes()
    path.write_bytes(good[:50])
    looks = itertools.count(1)
    real = disk.look

    def look(*arguments: Any) -> disk.Look:
        if next(looks) == 2:
            path.write_bytes(good)
        return real(*arguments)

    monkeypatch.setattr(disk, "look", look)

    assert called("--strict", path).code == 0
    assert next(looks) == 3


def test_a_sparse_file_of_a_terabyte_takes_no_time(tmp_path: Path) -> None:
    for name, head in (("nul.json", b""), ("claims.json", b'{"checksum":"xxh3:0123456789abcdef",')):
        with open(tmp_path / name, "wb") as file:
            file.write(head)
            file.truncate(1 << 40)

        ended = called(tmp_path / name)

        assert ended.code == 1
        assert "too-large" in ended.out


@pytest.mark.parametrize("blob", [b"[" * 100_000, b'{"a":' * 100_000, b"\xff" * 5000, b'"' + b"\\" * 5000])
def test_bytes_made_to_break_a_reader_are_damaged_and_no_more(tmp_path: Path, blob: bytes) -> None:
    for name in ("deep.json", "dra_manager_state"):
        (tmp_path / name).write_bytes(blob)
        for command in ("verify", "show", "diagnose"):
            ended = called(command, tmp_path / name)
            assert (ended.code, ended.err) == (1, "")


@pytest.fixture
def mount() -> Iterator[Callable[..., None]]:
    """Mounts that end with the test; skips where mounting is not allowed."""
    mounted: list[Path] = []

    def mount_at(place: Path, *options: str) -> None:
        process = subprocess.run(["mount", *options, str(place)], capture_output=True, check=False)
        if process.returncode:
            pytest.skip(f"no mounts here: {process.stderr.decode().strip()}")
        mounted.append(place)

    yield mount_at
    for place in reversed(mounted):
        subprocess.run(["umount", str(place)], check=True)


@as_root
def test_other_file_systems_below_are_left_out_and_said_so(
    directory: Path, tmp_path: Path, mount: Callable[..., None]
) -> None:
    kubelet = tmp_path / "kubelet"
    (kubelet / "device-plugins").mkdir(parents=True)
    (tmp_path / "other").mkdir()
    (directory / ".quarantine").mkdir()
    mount(kubelet / "device-plugins", "-t", "tmpfs", "none")
    mount(directory / ".quarantine", "-t", "tmpfs", "none")
    (directory / ".quarantine" / "file").touch()
    mount(tmp_path / "other", "-t", "tmpfs", "none")
    (tmp_path / "other" / "file").write_bytes((directory / "claim-1.json").read_bytes())
    mount(directory / "claim-1.json", "--bind", str(tmp_path / "other" / "file"))

    ended = called(directory)

    assert "is a separate mount and was not checked" in called(kubelet).out
    assert ended.code == 3
    assert "claim-1.json: unreadable: is on a different file system" in ended.out
    assert ".quarantine could not be counted: it is a separate mount" in ended.out
    assert called("--json", directory).document["paths"][0]["quarantined"] == 0
    assert called(directory / "claim-1.json").code == 0  # given by name, it is checked


@as_root
def test_without_the_kernel_s_list_of_mounts_other_file_systems_are_left_out_as_well(
    directory: Path, mount: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    (directory / ".quarantine").mkdir()
    mount(directory / ".quarantine", "-t", "tmpfs", "none")
    (directory / ".quarantine" / "file").touch()
    monkeypatch.setattr(disk, "mounted_in", lambda _: frozenset())

    assert ".quarantine could not be counted: it is a separate mount" in called(directory).out


@pytest.fixture
def dead_mount() -> Iterator[Callable[[Path], None]]:
    """Mounts whose server never answers: even lstat waits for it until the test ends."""
    libc = ctypes.CDLL(None, use_errno=True)
    servers: list[int] = []
    mounted: list[Path] = []

    def mount_at(place: Path) -> None:
        try:
            server = os.open("/dev/fuse", os.O_RDWR)
        except OSError as error:
            pytest.skip(f"no FUSE here: {error.strerror}")
        servers.append(server)
        kind = stat.S_IFMT(place.stat().st_mode)
        options = f"fd={server},rootmode={kind:o},user_id=0,group_id=0"
        if libc.mount(b"dead", os.fsencode(place), b"fuse", 0, options.encode()):
            pytest.skip(f"no mounts here: {os.strerror(ctypes.get_errno())}")
        mounted.append(place)

    yield mount_at
    for server in servers:
        os.close(server)  # whoever still waits gets an error now
    for place in mounted:
        subprocess.run(["umount", "--lazy", str(place)], check=True)


@as_root
@pytest.mark.parametrize("command", ["verify", "list"])
def test_a_dead_mount_is_not_waited_for(directory: Path, dead_mount: Callable[[Path], None], command: str) -> None:
    (directory / ".quarantine").mkdir()
    (directory / "folder.json").mkdir()
    for name in (".quarantine", "folder.json", "claim-0.json"):  # claim-0 also has a previous generation
        dead_mount(directory / name)

    ended = checkpoint_verify(command, "--json", directory)

    assert ended.code == 3
    rows = ended.document["problems" if command == "verify" else "checkpoints"]
    unreadable = {Path(row["path"]).name for row in rows if row["reason"] == "unreadable"}
    assert unreadable == {"folder.json", "claim-0.json"}


@as_root
def test_a_dead_mount_at_kubelet_s_device_plugins_is_not_waited_for(
    tmp_path: Path, dead_mount: Callable[[Path], None]
) -> None:
    kubelet = tmp_path / "kubelet"
    (kubelet / "device-plugins").mkdir(parents=True)
    dead_mount(kubelet / "device-plugins")

    assert "is a separate mount and was not checked" in checkpoint_verify(kubelet).out
