"""Threads that write as fast as they can, and the journal of what was acknowledged to them."""

from __future__ import annotations

import threading
from typing import Any

from checkpointmanager import CheckpointManager, CheckpointWriteFailed
from checkpointmanager.etcd import EtcdStore, EtcdUnavailable

from ..processes import LIMIT, until
from .history import History
from .servers import Cluster

THREADS = 4
TIMEOUT = 2.0


class Load:
    """Each thread counts up in its own key, and repeats what fails; `failures` has the errnos."""

    def __init__(self, cluster: Cluster, prefix: str, *, padding: int = 0, **options: Any) -> None:
        options = {"ttl": 60, "timeout": TIMEOUT, **options}
        self._padding = "x" * padding
        self.store = EtcdStore(cluster.endpoints, prefix, owner="load", **options)
        self.manager: CheckpointManager[Any] = CheckpointManager(self.store)
        self.acknowledged = dict.fromkeys(range(THREADS), 0)
        self.failures: dict[int, list[int | None]] = {thread: [] for thread in range(THREADS)}
        self.doubts = 0
        self._errors: list[BaseException] = []
        self._stop = threading.Event()
        self._threads = [threading.Thread(target=self._run, args=(number,)) for number in range(THREADS)]

    def _run(self, thread: int) -> None:
        try:
            while not self._stop.is_set():
                self._count_up(thread)
        except BaseException as error:  # noqa: BLE001 - raised below, where the test sees it
            self._errors.append(error)

    def _count_up(self, thread: int) -> None:
        number = self.acknowledged[thread] + 1
        try:
            self.manager.create_checkpoint(f"k{thread}", {"number": number, "padding": self._padding})
            self.acknowledged[thread] = number
        except CheckpointWriteFailed as error:
            self.doubts += error.in_doubt
            self._failed(thread, error.errno)
        except EtcdUnavailable as error:
            self._failed(thread, error.errno)

    def _failed(self, thread: int, number: int | None) -> None:
        self.failures[thread].append(number)
        self._stop.wait(0.01)  # a refusal takes no time, so the thread would do nothing else

    def follow(self, each: int) -> None:
        """Wait until each thread has so many more acknowledgements."""
        wanted = {thread: count + each for thread, count in self.acknowledged.items()}
        self.until(lambda: all(self.acknowledged[thread] >= wanted[thread] for thread in wanted))

    def until_refused(self, number: int | None = None) -> None:
        """Wait until each thread has failed, with this errno if given. The test fails if one succeeds afterwards."""
        for _ in range(2):
            acknowledged = dict(self.acknowledged)
            wanted = {thread: self._count(thread, number) + 1 for thread in range(THREADS)}
            self.until(lambda wanted=wanted: all(self._count(thread, number) >= wanted[thread] for thread in wanted))
        assert self.acknowledged == acknowledged

    def _count(self, thread: int, number: int | None) -> int:
        failures = self.failures[thread]
        return len(failures) if number is None else failures.count(number)

    def until(self, condition: Any) -> None:
        until(lambda: self._errors or condition(), 60)
        assert not self._errors

    def __enter__(self) -> Load:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join(LIMIT)
        assert not self._errors

    def check(self, history: History) -> None:
        """Each value was acknowledged or being written, and no revision wrote anything twice, late or by another."""
        found = {key: checkpoint.data["number"] for key, checkpoint in self.manager.load().checkpoints.items()}
        for thread, acknowledged in self.acknowledged.items():
            assert found[f"k{thread}"] in (acknowledged, acknowledged + 1)
        writes = history.writes()
        self.store.close()
        assert {write.holder for write in writes} == {"load"}
        repeated = len(writes) - len({(write.key, write.data["number"]) for write in writes})
        assert repeated <= self.doubts, "a write that failed for certain was made"
        for key in found:
            numbers = [write.data["number"] for write in writes if write.key == key]
            # A number may be written again after a doubt, as a new generation; it never goes back.
            assert numbers == sorted(numbers)
            assert set(numbers) == set(range(1, numbers[-1] + 1))
            generations = [write.generation for write in writes if write.key == key]
            assert generations == [*range(1, len(numbers) + 1)]
