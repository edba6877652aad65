"""Writers share the syncs of their directory: one sync serves all waiting writers, and fails for all of them."""

from __future__ import annotations

import errno
import os
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from unittest import mock

from checkpointmanager._filestore.directory import Directory


def outcomes_of_syncs_that_wait_for_one(directory: Directory, then: list[BaseException | None]) -> list[Any]:
    """The results of three threads that arrive during a sync; `then` holds the kernel's answer to each further one."""
    running, go_on = threading.Event(), threading.Event()
    answers = iter(then)

    def fsync(_: int) -> None:
        if not running.is_set():
            running.set()
            assert go_on.wait(20)
        elif answer := next(answers):
            raise answer

    with mock.patch.object(os, "fsync", fsync), ThreadPoolExecutor(4) as pool:
        first = pool.submit(directory.sync)
        assert running.wait(20)
        others = [pool.submit(directory.sync) for _ in range(3)]
        time.sleep(0.1)  # until all three wait
        go_on.set()
        first.result(20)
        outcomes = [other.exception(20) for other in others]
    assert list(answers) == [], "no further sync is made"
    return sorted(type(outcome).__name__ for outcome in outcomes)


def test_one_sync_serves_all_waiting_writers(real_directory: Path) -> None:
    directory = Directory(real_directory, create=True, allow_insecure=False)
    assert outcomes_of_syncs_that_wait_for_one(directory, [None]) == ["NoneType"] * 3
    directory.close()


def test_a_failed_sync_fails_for_all_waiting_writers(real_directory: Path) -> None:
    directory = Directory(real_directory, create=True, allow_insecure=False)
    failure = OSError(errno.EIO, "Input/output error")
    assert outcomes_of_syncs_that_wait_for_one(directory, [failure]) == ["OSError"] * 3
    directory.sync()
    directory.close()


def test_an_interrupted_sync_serves_no_waiting_writer(real_directory: Path) -> None:
    directory = Directory(real_directory, create=True, allow_insecure=False)
    outcomes = outcomes_of_syncs_that_wait_for_one(directory, [KeyboardInterrupt(), None])
    assert outcomes == ["KeyboardInterrupt", "NoneType", "NoneType"]
    directory.close()
