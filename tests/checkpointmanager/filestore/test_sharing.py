"""sharing=True: several processes write one directory in turn, each write under the lock."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from checkpointmanager import (
    CheckpointManager,
    CheckpointNotFound,
    DirectoryLocked,
)
from checkpointmanager.testing import Call, watching

from ..processes import LIMIT, Agent, Child

PROCESSES = 4
UPDATES = 40  # per process


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return tmp_path / "claims"


@pytest.fixture
def sharer(directory: Path) -> Iterator[CheckpointManager[Any]]:
    with CheckpointManager(directory, sharing=True) as manager:
        yield manager


@pytest.fixture
def agent() -> Iterator[Agent]:
    with Agent() as agent:
        yield agent


@pytest.fixture
def agents(directory: Path) -> Iterator[list[Agent]]:
    with ExitStack() as stack:
        agents = [stack.enter_context(Agent()) for _ in range(PROCESSES)]
        for agent in agents:
            agent.ask("open", directory, sharing=True, lock_timeout=LIMIT)
        yield agents


def _temps(directory: Path) -> list[str]:
    return [name for name in os.listdir(directory) if name.startswith(".tmp-")]


def test_no_update_of_one_key_by_four_processes_is_lost(agents: list[Agent], directory: Path) -> None:
    agents[0].ask("create", "counter", 0)
    for agent in agents:
        agent.send("count", "counter", UPDATES)
    generations = sorted(generation for agent in agents for generation in agent.answer())
    assert generations == list(range(2, PROCESSES * UPDATES + 2))
    assert agents[0].ask("get", "counter") == PROCESSES * UPDATES
    assert not _temps(directory)


def test_four_processes_count_on_keys_of_their_own(agents: list[Agent]) -> None:
    for number, agent in enumerate(agents):
        agent.ask("create", f"counter-{number}", 0)
        agent.send("count", f"counter-{number}", UPDATES)
    for agent in agents:
        assert agent.answer() == list(range(2, UPDATES + 2))
    for number in range(PROCESSES):
        assert agents[0].ask("get", f"counter-{number}") == UPDATES


def test_threads_of_two_processes_count_together(agents: list[Agent]) -> None:
    agents[0].ask("create", "counter", 0)
    for agent in agents[:2]:
        agent.send("count_in_threads", "counter", 4, 10)
    generations = sorted(generation for agent in agents[:2] for generation in agent.answer())
    assert generations == list(range(2, 82))
    assert agents[3].ask("get", "counter") == 80


def test_threads_of_one_process_do_not_pass_each_other(sharer: CheckpointManager[int]) -> None:
    sharer.create_checkpoint("counter", 0)

    def count() -> None:
        for _ in range(10):
            sharer.update_checkpoint("counter", lambda number: number + 1)

    with ThreadPoolExecutor(8) as pool:
        for counting in [pool.submit(count) for _ in range(8)]:
            counting.result(LIMIT)
    assert sharer.get_checkpoint("counter").data == 80
    assert sharer.get_checkpoint("counter").generation == 81


def test_a_write_of_another_thread_waits_its_turn_like_one_of_another_process(sharer: CheckpointManager[int]) -> None:
    """If threads overlapped, the lock would never be free for the other processes."""
    sharer.create_checkpoint("claim", 1)
    inside, go_on = threading.Event(), threading.Event()

    def change(number: int) -> int:
        inside.set()
        assert go_on.wait(LIMIT)
        return number + 1

    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(sharer.update_checkpoint, "claim", change)
        assert inside.wait(LIMIT)
        second = pool.submit(sharer.create_checkpoint, "other", 1)
        try:
            with pytest.raises(TimeoutError):
                second.result(0.2)
        finally:
            go_on.set()
        assert first.result(LIMIT).generation == 2
        assert second.result(LIMIT).generation == 1


def test_a_change_function_that_raises_gives_the_lock_back(sharer: CheckpointManager[int], directory: Path) -> None:
    sharer.create_checkpoint("claim", 1)
    with pytest.raises(ZeroDivisionError):
        sharer.update_checkpoint("claim", lambda number: number // 0)
    CheckpointManager(directory, lock_timeout=0).close()


def test_what_another_process_wrote_is_seen_because_nothing_is_remembered(
    sharer: CheckpointManager[int], agent: Agent, directory: Path
) -> None:
    agent.ask("open", directory, sharing=True)
    assert sharer.create_checkpoint("claim", 1).generation == 1
    assert agent.ask("create", "claim", 2) == 2
    again = sharer.create_checkpoint("claim", 1)
    assert (again.generation, again.unchanged) == (3, False)
    assert agent.ask("get", "claim") == 1
    sharer.remove_checkpoint("claim")
    with pytest.raises(CheckpointNotFound):
        agent.ask("get", "claim")
    assert agent.ask("create", "claim", 1) == 1


def test_under_sharing_nothing_is_ever_unchanged(sharer: CheckpointManager[int]) -> None:
    written = [sharer.create_checkpoint("claim", 1) for _ in range(3)]
    assert [(write.generation, write.unchanged) for write in written] == [(1, False), (2, False), (3, False)]


def test_an_exclusive_owner_keeps_sharers_out(agent: Agent, directory: Path) -> None:
    agent.ask("open", directory, owner="exclusive one")
    with pytest.raises(DirectoryLocked, match=r"after waiting 0\.1 s.*'exclusive one', pid"):
        CheckpointManager(directory, sharing=True, lock_timeout=0.1)


def test_an_open_sharer_cannot_write_beside_an_exclusive_owner(agent: Agent, directory: Path) -> None:
    with CheckpointManager(directory, sharing=True, lock_timeout=0.1) as sharer:
        sharer.create_checkpoint("claim", 1)
        agent.ask("open", directory, owner="exclusive one")
        with pytest.raises(DirectoryLocked, match="'exclusive one'"):
            sharer.create_checkpoint("claim", 2)
        assert sharer.get_checkpoint("claim").data == 1
        agent.ask("close")
        assert sharer.create_checkpoint("claim", 2).generation == 2


def test_a_writing_sharer_keeps_an_exclusive_owner_out(agent: Agent, directory: Path) -> None:
    agent.ask("open", directory, sharing=True, owner="sharer")
    agent.send("stop_before", "rename", "claim", 1)
    agent.wait_until_stopped()
    with pytest.raises(DirectoryLocked, match=f"'sharer', pid {agent.pid} "):
        CheckpointManager(directory)
    agent.go_on()
    assert agent.answer() == 1
    CheckpointManager(directory).close()


def test_the_sweep_never_takes_the_temp_file_of_a_living_sharer(agent: Agent, directory: Path) -> None:
    agent.ask("open", directory, sharing=True)
    agent.send("stop_before", "rename", "claim", 1)
    agent.wait_until_stopped()
    temps = _temps(directory)
    assert len(temps) == 1
    with pytest.raises(DirectoryLocked):
        CheckpointManager(directory, sharing=True, lock_timeout=0.1)
    assert _temps(directory) == temps
    agent.go_on()
    assert agent.answer() == 1
    with CheckpointManager(directory, sharing=True) as sharer:
        assert sharer.get_checkpoint("claim").data == 1


@pytest.mark.parametrize("call", ["write", "fsync", "link", "rename", "close"])
def test_a_sharer_killed_amid_a_write_does_not_block_the_others(
    sharer: CheckpointManager[int], agent: Agent, directory: Path, call: str
) -> None:
    sharer.create_checkpoint("claim", 1)
    agent.ask("open", directory, sharing=True)
    with Agent() as victim:
        victim.ask("open", directory, sharing=True)
        victim.send("stop_before", call, "claim", 2)
        victim.wait_until_stopped()
        victim.kill()
    for number in range(2, 12):
        assert agent.ask("create", "claim", number) == number
    CheckpointManager(directory, sharing=True).close()
    assert not _temps(directory)


def test_what_a_killed_child_left_does_not_hinder_its_parent(sharer: CheckpointManager[int], directory: Path) -> None:
    sharer.create_checkpoint("claim", 1)

    def die(call: Call) -> None:
        if call.name == "rename":
            os.kill(os.getpid(), signal.SIGKILL)

    def write_and_die(_: int) -> None:
        with CheckpointManager(directory, sharing=True) as own, watching(directory, before=die):
            own.create_checkpoint("claim", 2)

    with Child(write_and_die) as child:
        assert child.wait() == -signal.SIGKILL
    assert len(_temps(directory)) == 2
    for number in range(2, 12):
        assert sharer.create_checkpoint("claim", number).generation == number
