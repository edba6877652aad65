"""sharing=True: several processes write one directory in turn, each write under the lock."""

from __future__ import annotations

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

from ..contents import names
from ..processes import LIMIT, Agent

pytestmark = pytest.mark.usefixtures("kit_standing_by")

PROCESSES, THREADS, UPDATES = 3, 4, 10
TOTAL = PROCESSES * THREADS * UPDATES


@pytest.fixture
def sharer(directory: Path) -> Iterator[CheckpointManager[Any]]:
    with CheckpointManager(directory, sharing=True) as manager:
        yield manager


def test_no_update_by_threads_of_several_processes_is_lost(directory: Path) -> None:
    with ExitStack() as stack:
        agents = [stack.enter_context(Agent()) for _ in range(PROCESSES)]
        for agent in agents:
            agent.ask("open", directory, sharing=True, lock_timeout=LIMIT)
        agents[0].ask("create", "counter", 0)
        for agent in agents:
            agent.send("count_in_threads", "counter", THREADS, UPDATES)
        generations = sorted(generation for agent in agents for generation in agent.answer())
        assert generations == list(range(2, TOTAL + 2))
        assert agents[0].ask("get", "counter") == TOTAL
    assert names(directory, ".tmp-") == []


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
    for generation in (3, 4):
        again = sharer.create_checkpoint("claim", 1)
        assert (again.generation, again.unchanged) == (generation, False)
    assert agent.ask("get", "claim") == 1
    sharer.remove_checkpoint("claim")
    with pytest.raises(CheckpointNotFound):
        agent.ask("get", "claim")
    assert agent.ask("create", "claim", 1) == 1


def test_an_open_sharer_cannot_write_beside_an_exclusive_owner(agent: Agent, directory: Path) -> None:
    with CheckpointManager(directory, sharing=True, lock_timeout=0.1) as sharer:
        sharer.create_checkpoint("claim", 1)
        agent.ask("open", directory, owner="exclusive one")
        with pytest.raises(DirectoryLocked, match=r"after waiting 0\.1 s.*'exclusive one', pid"):
            CheckpointManager(directory, sharing=True, lock_timeout=0.1)
        with pytest.raises(DirectoryLocked, match="'exclusive one'"):
            sharer.create_checkpoint("claim", 2)
        assert sharer.get_checkpoint("claim").data == 1
        agent.ask("close")
        assert sharer.create_checkpoint("claim", 2).generation == 2


def test_a_writing_sharer_keeps_owners_and_sharers_out_and_its_temp_file_is_not_swept(
    agent: Agent, directory: Path
) -> None:
    agent.ask("open", directory, sharing=True, owner="sharer")
    agent.send("stop_before", "rename", "claim", 1)
    agent.wait_until_stopped()
    temps = names(directory, ".tmp-")
    assert len(temps) == 1
    for sharing in (False, True):
        with pytest.raises(DirectoryLocked, match=f"'sharer', pid {agent.pid} "):
            CheckpointManager(directory, sharing=sharing, lock_timeout=0.1)
    assert names(directory, ".tmp-") == temps
    agent.go_on()
    assert agent.answer() == 1
    CheckpointManager(directory).close()
