"""One owner: who holds the directory, how long, and which error other processes get. With real processes."""

from __future__ import annotations

import gc
import json
import os
import signal
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from checkpointmanager import CheckpointManager, DirectoryLocked, InsecureDirectory, ManagerClosed

from ..processes import LIMIT, Agent, until
from ..programs import COMMAND


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return tmp_path / "claims"


@pytest.fixture
def first() -> Iterator[Agent]:
    with Agent() as agent:
        yield agent


@pytest.fixture
def second() -> Iterator[Agent]:
    with Agent() as agent:
        yield agent


def test_the_error_in_a_second_process_names_the_holder_of_the_directory(directory: Path, first: Agent) -> None:
    pid = first.ask("open", directory, owner="gpu-driver v2")

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
    for part in (str(directory), f"pid {pid}", socket.gethostname(), COMMAND, owner.since, "gpu-driver v2"):
        assert part in str(refusal.value)


def test_a_refused_process_leaves_the_holder_its_lock_and_its_label(
    directory: Path, first: Agent, second: Agent
) -> None:
    first.ask("open", directory, owner="the first")
    for _ in range(3):
        with pytest.raises(DirectoryLocked, match="'the first'"):
            second.ask("open", directory, owner="the second")
    assert first.ask("create", "claim", 1) == 1


def test_a_waiting_process_takes_over_when_the_holder_closes(directory: Path, first: Agent, second: Agent) -> None:
    first.ask("open", directory)
    first.ask("create", "claim", "from the old agent")
    second.send("open", directory, lock_timeout=LIMIT)
    assert not second.has_answered(within=0.2)

    first.ask("close")

    assert second.answer() == second.pid
    assert second.ask("get", "claim") == "from the old agent"
    assert second.ask("create", "claim", "from the new agent") == 2


def test_a_waiting_process_takes_over_when_the_holder_is_killed(directory: Path, first: Agent, second: Agent) -> None:
    first.ask("open", directory)
    second.send("open", directory, lock_timeout=LIMIT)
    assert not second.has_answered(within=0.2)

    os.kill(first.pid, signal.SIGKILL)

    assert second.answer() == second.pid


def test_waiting_ends_with_the_name_of_the_holder(directory: Path, first: Agent) -> None:
    first.ask("open", directory, owner="old agent")
    with pytest.raises(DirectoryLocked, match=rf"after waiting 0\.2 s.*'old agent', pid {first.pid} "):
        CheckpointManager(directory, lock_timeout=0.2)


def test_the_lock_of_a_killed_process_is_gone_at_once(directory: Path, first: Agent) -> None:
    first.ask("open", directory)
    first.kill()
    CheckpointManager(directory, lock_timeout=0).close()


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
def test_a_holder_that_cannot_be_read_is_another_owner_all_the_same(directory: Path, first: Agent, text: bytes) -> None:
    first.ask("open", directory)
    (directory / ".lock").write_bytes(text)
    with pytest.raises(DirectoryLocked, match=r"locked by another owner$") as refusal:
        CheckpointManager(directory)
    assert refusal.value.owner is None


@pytest.mark.parametrize("sharing", [False, True])
def test_the_error_of_a_second_manager_in_one_process_says_so(directory: Path, sharing: bool) -> None:
    with CheckpointManager(directory), pytest.raises(DirectoryLocked, match="by another manager in this process: "):
        CheckpointManager(directory, sharing=sharing, lock_timeout=0)
    CheckpointManager(directory).close()


def test_neither_the_pid_nor_an_earlier_manager_makes_another_process_this_one(directory: Path, first: Agent) -> None:
    """In containers every pid is 1."""
    CheckpointManager(directory).close()
    first.ask("open", directory)
    holder = json.loads((directory / ".lock").read_bytes())
    (directory / ".lock").write_text(json.dumps(holder | {"pid": os.getpid()}))
    with pytest.raises(DirectoryLocked, match=f"locked by another owner: .*pid {os.getpid()}"):
        CheckpointManager(directory)


def test_the_error_in_a_forked_child_names_another_owner(directory: Path) -> None:
    with CheckpointManager(directory):
        ours, theirs = os.pipe()
        if not (child := os.fork()):
            try:
                CheckpointManager(directory)
            except DirectoryLocked as error:
                os.write(theirs, str(error).encode())
            finally:
                os._exit(0)
        os.waitpid(child, 0)
        message = os.read(ours, 1000)
        for end in (ours, theirs):
            os.close(end)
    assert b"locked by another owner" in message


def test_a_label_and_a_command_outside_unicode_are_no_obstacle(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.argv", [os.fsdecode(b"/opt/agent-\xff")])
    with (
        CheckpointManager(directory, owner="label-\udcff"),
        pytest.raises(DirectoryLocked, match=r"label-\?.*agent-\?"),
    ):
        CheckpointManager(directory)


def test_the_lock_is_one_for_all_paths_of_a_directory(directory: Path, first: Agent) -> None:
    first.ask("open", directory)
    by_link = directory.with_name("link")
    by_link.symlink_to(directory)
    with pytest.raises(DirectoryLocked):
        CheckpointManager(by_link)


def test_what_is_no_file_in_place_of_the_lock_is_refused(directory: Path) -> None:
    directory.mkdir(mode=0o700)
    for make in (Path.mkdir, os.mkfifo, lambda path: path.symlink_to("/dev/null")):
        make(directory / ".lock")
        with pytest.raises(InsecureDirectory, match="lock file"):
            CheckpointManager(directory)
        (directory / ".lock").rename(directory.parent / f"away-{len(list(directory.parent.iterdir()))}")


def test_after_close_the_directory_is_free_for_this_process_and_others(directory: Path, first: Agent) -> None:
    for number in range(1, 4):
        with CheckpointManager(directory) as manager:
            assert manager.create_checkpoint("claim", number).generation == number
    first.ask("open", directory)
    assert first.ask("get", "claim") == 3


def test_close_may_be_called_twice_and_nothing_works_after_it(directory: Path) -> None:
    manager = CheckpointManager(directory)
    manager.create_checkpoint("claim", 1)
    manager.close()
    manager.close()
    for operation in (
        lambda: manager.create_checkpoint("claim", 2),
        lambda: manager.get_checkpoint("claim"),
        lambda: manager.remove_checkpoint("claim"),
        manager.list_checkpoints,
    ):
        with pytest.raises(ManagerClosed, match="is closed; open another"):
            operation()


def test_close_twice_leaves_the_next_owner_alone(directory: Path) -> None:
    manager = CheckpointManager(directory)
    manager.close()
    with CheckpointManager(directory):
        manager.close()
        with pytest.raises(DirectoryLocked):
            CheckpointManager(directory)


def test_close_waits_for_the_calls_of_other_threads(directory: Path) -> None:
    manager = CheckpointManager(directory)
    manager.create_checkpoint("claim", 1)
    inside, go_on = threading.Event(), threading.Event()

    def change(number: int) -> int:
        inside.set()
        assert go_on.wait(LIMIT)
        return number + 1

    with ThreadPoolExecutor(2) as pool:
        update = pool.submit(manager.update_checkpoint, "claim", change)
        assert inside.wait(LIMIT)
        closing = pool.submit(manager.close)
        until(lambda: _is_closed(manager))
        assert not closing.done()
        with pytest.raises(DirectoryLocked):
            CheckpointManager(directory)
        go_on.set()
        closing.result(LIMIT)
        assert update.done()
        assert update.result().data == 2
    with CheckpointManager(directory) as again:
        assert again.get_checkpoint("claim").data == 2


def test_an_interrupted_close_can_be_repeated(directory: Path) -> None:
    manager = CheckpointManager(directory)
    manager.create_checkpoint("claim", 1)
    inside, go_on = threading.Event(), threading.Event()

    def change(number: int) -> int:
        inside.set()
        assert go_on.wait(LIMIT)
        return number + 1

    def interrupt() -> None:
        until(lambda: _is_closed(manager))
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

    with ThreadPoolExecutor(2) as pool:
        update = pool.submit(manager.update_checkpoint, "claim", change)
        assert inside.wait(LIMIT)
        pool.submit(interrupt)
        with pytest.raises(KeyboardInterrupt):
            manager.close()
        go_on.set()
        assert update.result(LIMIT).data == 2
    manager.close()
    CheckpointManager(directory).close()


def test_close_from_inside_a_change_function_is_refused_and_not_waited_for(directory: Path) -> None:
    with CheckpointManager(directory) as manager:
        manager.create_checkpoint("claim", 1)

        def change(number: int) -> int:
            with pytest.raises(ManagerClosed, match="from within one of its own calls"):
                manager.close()
            return number + 1

        assert manager.update_checkpoint("claim", change).data == 2
        assert manager.create_checkpoint("other", 1).generation == 1


def test_a_manager_that_was_never_closed_gives_lock_and_descriptors_back(directory: Path, first: Agent) -> None:
    gc.collect()
    before = set(os.listdir("/proc/self/fd"))
    manager = CheckpointManager(directory)
    manager.create_checkpoint("claim", 1)
    with pytest.raises(DirectoryLocked):
        first.ask("open", directory)

    del manager
    gc.collect()

    assert set(os.listdir("/proc/self/fd")) == before
    first.ask("open", directory)


def test_a_refused_manager_leaves_no_descriptor_open(directory: Path, first: Agent) -> None:
    first.ask("open", directory)
    gc.collect()
    before = set(os.listdir("/proc/self/fd"))
    for _ in range(3):
        with pytest.raises(DirectoryLocked):
            CheckpointManager(directory)
    gc.collect()
    assert set(os.listdir("/proc/self/fd")) == before


def _is_closed(manager: CheckpointManager[Any]) -> bool:
    try:
        manager.list_checkpoints()
    except ManagerClosed:
        return True
    return False
