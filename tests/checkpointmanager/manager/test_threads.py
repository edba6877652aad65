"""Many threads and one manager: nothing is lost, no thread waits without need, no reader sees a half-written file."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from checkpointmanager import CheckpointManager, CheckpointNotFound, Event
from checkpointmanager.testing import Call, watching

from ..processes import LIMIT, Child, run_together, until

THREADS = 16
WRITES = 40  # per thread
RACE_SECONDS = 1.5


@pytest.fixture
def manager(directory: Path) -> Iterator[CheckpointManager[Any]]:
    with CheckpointManager(directory) as manager:
        yield manager


@pytest.fixture
def quick(real_directory: Path, no_waiting_for_the_disk: None) -> Iterator[CheckpointManager[Any]]:
    """On the disk, which is faster than pyfakefs."""
    with CheckpointManager(real_directory) as manager:
        yield manager


def test_sixteen_threads_on_one_key_make_generations_without_gap(
    quick: CheckpointManager[Any], real_directory: Path
) -> None:
    def write(thread: int) -> list[tuple[int, list[int]]]:
        return [(quick.create_checkpoint("claim", [thread, n]).generation, [thread, n]) for n in range(WRITES)]

    with ThreadPoolExecutor(THREADS) as pool:
        written = dict(pair for pairs in pool.map(write, range(THREADS)) for pair in pairs)

    assert sorted(written) == list(range(1, THREADS * WRITES + 1))
    last = quick.get_checkpoint("claim")
    assert last.generation == THREADS * WRITES
    assert last.data == written[last.generation]
    assert last.data[1] == WRITES - 1
    assert quick.verify().intact == 1
    assert not [path for path in real_directory.iterdir() if path.name.startswith(".tmp-")]


def test_no_update_of_sixteen_threads_is_lost(quick: CheckpointManager[Any]) -> None:
    quick.create_checkpoint("counter", 0)

    def count(_: int) -> None:
        for _ in range(WRITES):
            quick.update_checkpoint("counter", lambda number: number + 1)

    with ThreadPoolExecutor(THREADS) as pool:
        list(pool.map(count, range(THREADS)))
    counter = quick.get_checkpoint("counter")
    assert (counter.data, counter.generation) == (THREADS * WRITES, THREADS * WRITES + 1)


def test_batches_and_transactions_that_overlap_neither_deadlock_nor_lose_any(
    quick: CheckpointManager[Any],
) -> None:
    keys = ["a", "b", "c", "d"]

    def write(thread: int) -> None:
        for n in range(10):
            with quick.batch() as batch:
                for key in keys if thread % 2 else reversed(keys):
                    batch.create_checkpoint(key, [thread, n])
            with quick.transaction() as transaction:
                for key in (keys[(thread + n) % 4], keys[(thread + n + 1) % 4]):
                    transaction.update_checkpoint(f"counter-{key}", lambda count: count + 1, 0)

    run_together(*(partial(write, thread) for thread in range(8)))
    assert [quick.get_checkpoint(key).generation for key in keys] == [80] * 4
    assert sum(quick.get_checkpoint(f"counter-{key}").data for key in keys) == 8 * 10 * 2
    assert not quick.verify().problems


@pytest.mark.parametrize(("call", "seen"), [("write", 0), ("link", 1), ("rename", 1)])
def test_a_writer_that_hangs_before_or_after_its_commit_holds_up_its_own_key_only(
    manager: CheckpointManager[Any], directory: Path, call: str, seen: int
) -> None:
    manager.create_checkpoint("stuck", 0)
    with ThreadPoolExecutor(3) as pool:
        with _first_write_hanging_at(call, directory) as go_on:
            stuck = pool.submit(manager.create_checkpoint, "stuck", 1)
            assert go_on.hanging.wait(LIMIT)
            behind = pool.submit(manager.create_checkpoint, "stuck", 2)
            assert manager.get_checkpoint("stuck").data == seen
            other = pool.submit(manager.create_checkpoint, "other", 1)
            assert other.result(LIMIT).generation == 1
            assert not stuck.done()
            assert not behind.done()
            go_on.set()
        assert stuck.result(LIMIT).generation == 2
        assert behind.result(LIMIT).generation == 3


def test_while_a_sync_hangs_readers_see_the_old_value_and_waiting_writers_share_the_next_sync(
    manager: CheckpointManager[Any], directory: Path
) -> None:
    manager.create_checkpoint("first", 0)
    with ThreadPoolExecutor(5) as pool, watching(directory) as calls:
        with _first_write_hanging_at("fdatasync", directory) as go_on:
            first = pool.submit(manager.create_checkpoint, "first", 1)
            assert go_on.hanging.wait(LIMIT)
            others = [pool.submit(manager.create_checkpoint, f"key-{number}", number) for number in range(4)]
            until(lambda: sum(call.name == "write" for call in calls) == 1 + 1 + 4)  # all new files, one record
            assert manager.get_checkpoint("first").data == 0
            assert not first.done()
            assert not any(other.done() for other in others)
            go_on.set()
        assert first.result(LIMIT).generation == 2
        assert [other.result(LIMIT).generation for other in others] == [1] * 4
    assert 2 <= sum(call.name == "fdatasync" for call in calls) <= 3, "one of them may come before all have joined"


def _torn_or_going_back(manager: CheckpointManager[Any], keys: list[str], stop: threading.Event) -> tuple[int, str]:
    """The number of reads until `stop`, and what was wrong with them."""
    newest = dict.fromkeys(keys, 0)
    reads = 0
    while not stop.is_set():
        for key in keys:
            try:
                checkpoint = manager.get_checkpoint(key)
            except CheckpointNotFound:
                newest[key] = 0
                continue
            reads += 1
            if set(checkpoint.data["copies"]) != {checkpoint.data["number"]}:
                return reads, f"{key}: torn"
            if key == "kept" and checkpoint.generation < newest[key]:
                return reads, f"{key}: generation {checkpoint.generation} after {newest[key]}"
            newest[key] = checkpoint.generation
    return reads, ""


def test_readers_that_race_with_writers_never_see_damage(real_directory: Path) -> None:
    events: list[Event] = []
    keys = ["kept", "removed"]
    stop = threading.Event()

    def write(manager: CheckpointManager[Any], key: str) -> int:
        number = 0
        while not stop.is_set():
            number += 1
            manager.create_checkpoint(key, {"number": number, "copies": [number] * (number % 700 + 1)})
            if key == "removed" and not number % 5:
                manager.remove_checkpoint(key)
        return number

    def read_alone(saying: int) -> None:
        ended = threading.Event()
        threading.Timer(RACE_SECONDS, ended.set).start()
        with CheckpointManager(real_directory, read_only=True) as reader, open(saying, "w") as said:
            reads, wrong = _torn_or_going_back(reader, keys, ended)
            said.write(wrong if reads and wrong else f"{min(reads, 1)} or more reads, all good")

    with ExitStack() as stack:
        manager = stack.enter_context(CheckpointManager(real_directory, durability="atomic", on_event=events.append))
        manager.create_checkpoint("kept", {"number": 1, "copies": [1]})
        child = stack.enter_context(Child(read_alone))
        pool = stack.enter_context(ThreadPoolExecutor(5))
        writing = [pool.submit(write, manager, key) for key in keys]
        reading = [pool.submit(_torn_or_going_back, manager, keys, stop) for _ in range(3)]
        output = child.read_to_end()
        stop.set()
        assert all(future.result(LIMIT) for future in writing)
        assert [wrong for reads, wrong in (future.result(LIMIT) for future in reading) if wrong or not reads] == []
        assert output == b"1 or more reads, all good"
        assert child.wait() == 0
    assert not [event for event in events if event.key]


class _Hanging(threading.Event):
    def __init__(self) -> None:
        super().__init__()
        self.hanging = threading.Event()


@contextmanager
def _first_write_hanging_at(call: str, directory: Path) -> Iterator[_Hanging]:
    go_on = _Hanging()
    first = threading.Lock()

    def hang(met: Call) -> None:
        if met.name == call and first.acquire(blocking=False):
            go_on.hanging.set()
            assert go_on.wait(LIMIT)

    try:
        with watching(directory, before=hang):
            yield go_on
    finally:
        go_on.set()
