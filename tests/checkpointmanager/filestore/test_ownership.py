"""One owner: who holds the directory, how long, and which error other processes get. With real processes."""

from __future__ import annotations

import errno
import fcntl
import gc
import json
import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from unittest import mock

import pytest

from checkpointmanager import CheckpointManager, DirectoryLocked

from ..processes import LIMIT, Agent
from ..programs import COMMAND


def test_the_error_in_a_second_process_names_the_holder_of_the_directory(directory: Path, agent: Agent) -> None:
    pid = agent.ask("open", directory, owner="gpu-driver v2")

    with pytest.raises(DirectoryLocked) as refusal:
        CheckpointManager(directory)

    owner = refusal.value.owner
    assert owner is not None
    assert (owner.pid, owner.host, owner.command, owner.label) == (
        pid,
        socket.gethostname(),
        COMMAND,
        "gpu-driver v2",
    )
    assert datetime.now(UTC) - datetime.fromisoformat(owner.since) < timedelta(minutes=1)
    assert refusal.value.path == str(directory)
    assert agent.ask("create", "claim", 1) == 1, "it still has its lock"
    for part in (str(directory), f"pid {pid}", socket.gethostname(), COMMAND, owner.since, "gpu-driver v2"):
        assert part in str(refusal.value)


@pytest.mark.parametrize("end", ["close", "kill"])
def test_a_waiting_process_takes_over_when_the_holder_ends(directory: Path, agent: Agent, end: str) -> None:
    agent.ask("open", directory)
    agent.ask("create", "claim", "from the old agent")
    with Agent() as second:
        second.send("open", directory, lock_timeout=LIMIT)
        assert not second.has_answered(within=0.2)

        agent.ask("close") if end == "close" else agent.kill()

        assert second.answer() == second.pid
        assert second.ask("get", "claim") == "from the old agent"
        assert second.ask("create", "claim", "from the new agent") == 2


def test_waiting_ends_with_the_name_of_the_holder(directory: Path, agent: Agent) -> None:
    agent.ask("open", directory, owner="old agent")
    with pytest.raises(DirectoryLocked, match=rf"after waiting 0\.2 s.*'old agent', pid {agent.pid} "):
        CheckpointManager(directory, lock_timeout=0.2)


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"12345\n",
        b"not JSON at all \xff\xfe",
        b"\0" * 300,
        b'{"pid":1,"host":"h","command":"c","since":"s","owner":"o"}\n',
        b"x" * 100_000,
    ],
    ids=["empty", "a pid", "garbage", "NUL", "a dead holder", "large"],
)
def test_a_lock_file_that_is_merely_there_means_nothing(directory: Path, text: bytes) -> None:
    directory.mkdir(mode=0o700)
    (directory / ".lock").write_bytes(text)
    with CheckpointManager(directory) as manager:
        manager.create_checkpoint("claim", 1)
        assert (directory / ".lock").stat().st_size < 1000  # the old text is replaced


@pytest.mark.parametrize("text", [b"", b"\0" * 300, b"garbage", b"[]", b'{"pid":"x"}'])
def test_a_holder_that_cannot_be_read_is_another_owner_all_the_same(directory: Path, agent: Agent, text: bytes) -> None:
    agent.ask("open", directory)
    (directory / ".lock").write_bytes(text)
    with pytest.raises(DirectoryLocked, match=r"locked by another owner$") as refusal:
        CheckpointManager(directory)
    assert refusal.value.owner is None


@pytest.mark.parametrize("sharing", [False, True])
def test_the_error_of_a_second_manager_in_one_process_says_so(directory: Path, sharing: bool) -> None:
    with CheckpointManager(directory), pytest.raises(DirectoryLocked, match="by another manager in this process: "):
        CheckpointManager(directory, sharing=sharing, lock_timeout=0)
    CheckpointManager(directory).close()


def test_neither_the_pid_nor_an_earlier_manager_makes_another_process_this_one(directory: Path, agent: Agent) -> None:
    """In containers every pid is 1."""
    CheckpointManager(directory).close()
    agent.ask("open", directory)
    holder = json.loads((directory / ".lock").read_bytes())
    (directory / ".lock").write_text(json.dumps(holder | {"pid": os.getpid()}))
    with pytest.raises(DirectoryLocked, match=f"locked by another owner: .*pid {os.getpid()}"):
        CheckpointManager(directory)


def test_a_label_and_a_command_outside_unicode_are_no_obstacle(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.argv", [os.fsdecode(b"/opt/agent-\xff")])
    with (
        CheckpointManager(directory, owner="label-\udcff"),
        pytest.raises(DirectoryLocked, match=r"label-\?.*agent-\?"),
    ):
        CheckpointManager(directory)


def test_the_lock_is_one_for_all_paths_of_a_directory(directory: Path, agent: Agent) -> None:
    agent.ask("open", directory)
    by_link = directory.with_name("link")
    by_link.symlink_to(directory)
    with pytest.raises(DirectoryLocked):
        CheckpointManager(by_link)


def test_a_manager_that_was_never_closed_gives_lock_and_descriptors_back(directory: Path, agent: Agent) -> None:
    gc.collect()
    before = set(os.listdir("/proc/self/fd"))
    manager = CheckpointManager(directory)
    manager.create_checkpoint("claim", 1)
    with pytest.raises(DirectoryLocked):
        agent.ask("open", directory)

    del manager
    gc.collect()

    assert set(os.listdir("/proc/self/fd")) == before
    agent.ask("open", directory)


def test_a_refused_manager_leaves_no_descriptor_open(directory: Path, agent: Agent) -> None:
    agent.ask("open", directory)
    gc.collect()
    before = set(os.listdir("/proc/self/fd"))
    for _ in range(3):
        with pytest.raises(DirectoryLocked):
            CheckpointManager(directory)
    gc.collect()
    assert set(os.listdir("/proc/self/fd")) == before


# The disk fails or `.lock` is replaced while the lock is taken: no process owns by mistake, and nothing gets stuck.


@pytest.mark.parametrize("call", ["truncate", "write"])
def test_a_lock_file_that_cannot_be_written_locks_all_the_same(directory: Path, call: str) -> None:
    with mock.patch.object(os, call, side_effect=OSError(errno.ENOSPC, "full")):
        manager = CheckpointManager(directory)

    with manager, pytest.raises(DirectoryLocked, match=r"locked by another manager in this process$"):
        CheckpointManager(directory)


@contextmanager
def replaced_while_taken(directory: Path) -> Iterator[None]:
    """As soon as the kernel has granted the lock, `.lock` is another file."""
    flock = fcntl.flock

    def replace(descriptor: int, operation: int) -> None:
        flock(descriptor, operation)
        if operation & fcntl.LOCK_EX:
            (directory / ".lock").rename(directory / ".away")
            (directory / ".lock").touch()

    with mock.patch.object(fcntl, "flock", replace):
        yield


def test_a_lock_file_that_was_replaced_while_it_was_taken_makes_no_owner(directory: Path) -> None:
    CheckpointManager(directory).close()
    with CheckpointManager(directory, sharing=True) as sharer:
        attempts: list[Callable[[], object]] = [
            lambda: CheckpointManager(directory),
            lambda: sharer.create_checkpoint("claim", 1),
        ]
        for attempt in attempts:
            with replaced_while_taken(directory), pytest.raises(DirectoryLocked, match=r"replaced while .* try again"):
                attempt()
        assert sharer.create_checkpoint("claim", 1).generation == 1
    CheckpointManager(directory).close()


LEFT_OPEN_UNDER_PYFAKEFS = """
import gc, os
from pyfakefs.fake_filesystem_unittest import Patcher
from checkpointmanager import CheckpointManager

with Patcher():
    manager = CheckpointManager("/claims")
real = [os.open("/dev/null", os.O_RDONLY) for _ in range(40)]
del manager
gc.collect()
for descriptor in real:
    os.fstat(descriptor)
"""


def test_a_lock_that_a_test_leaves_open_closes_no_real_descriptor() -> None:
    """In a process of its own: here a closed descriptor could belong to any part of the test run."""
    subprocess.run([sys.executable, "-c", LEFT_OPEN_UNDER_PYFAKEFS], check=True, timeout=LIMIT)


def test_the_library_of_locks_is_not_imported_before_a_lock_is_taken() -> None:
    code = "import sys, checkpointmanager, checkpointmanager.format; sys.exit('filelock' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)
