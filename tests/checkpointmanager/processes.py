"""Other processes, seen from the test that starts them: they are driven through pipes and never outlive it."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import select
import signal
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, TypeVar

from . import programs

LIMIT = 120.0  # seconds that anything may take on a busy machine; only a deadlock takes that long

R = TypeVar("R")


def until(condition: Callable[[], object], limit: float = LIMIT) -> None:
    """Wait for the condition, but not for ever."""
    deadline = time.monotonic() + limit
    while not condition():
        assert time.monotonic() < deadline, "the condition did not come true"
        time.sleep(0.002)


def open_descriptors() -> int:
    """Of this process."""
    return len(os.listdir("/proc/self/fd"))


def open_files() -> list[str]:
    """The paths of what is open in this process."""
    found = []
    for number in os.listdir("/proc/self/fd"):
        with suppress(OSError):  # the descriptor of the listing itself
            found.append(os.readlink(f"/proc/self/fd/{number}"))
    return found


def open_journals() -> int:
    """Those of replaced journals among them. An owner that writes has one."""
    return sum("/.journal" in path for path in open_files())


def run_together(*works: Callable[[], object]) -> None:
    """Each in a thread of its own. A deadlock between them is an error, and does not keep the test alive."""
    errors: list[BaseException] = []

    def run(work: Callable[[], object]) -> None:
        try:
            work()
        except BaseException as error:  # noqa: BLE001 - raised below, where the test sees it
            errors.append(error)

    threads = [threading.Thread(target=run, args=(work,), daemon=True) for work in works]
    for thread in threads:
        thread.start()
    deadline = time.monotonic() + LIMIT
    for thread in threads:
        thread.join(max(deadline - time.monotonic(), 0))
    if errors:
        raise errors[0]
    assert not any(thread.is_alive() for thread in threads), "threads wait for each other"


# Forked from a server that has imported the library: five times as fast as a new interpreter.
_SERVER = multiprocessing.get_context("forkserver")
_SERVER.set_forkserver_preload([programs.__name__])


class Agent:
    """A process of its own that runs programs.RemoteAgent. Errors come back as they were raised there."""

    def __init__(self, serve: Callable[[Connection], None] = programs.serve) -> None:
        self._orders, theirs = _SERVER.Pipe()
        self._process = _SERVER.Process(target=serve, args=(theirs,), daemon=True)
        self._process.start()
        theirs.close()

    @property
    def pid(self) -> int:
        assert self._process.pid
        return self._process.pid

    def ask(self, verb: str, *arguments: object, **options: object) -> Any:
        self.send(verb, *arguments, **options)
        return self.answer()

    def send(self, verb: str, *arguments: object, **options: object) -> None:
        """Send the order without waiting for the answer."""
        self._orders.send((verb, arguments, options))

    def has_answered(self, within: float = 0.0) -> bool:
        return self._orders.poll(within)

    def answer(self) -> Any:
        assert self._orders.poll(LIMIT), "the agent does not answer"
        answer = self._orders.recv()
        if isinstance(answer, Exception):
            raise answer
        return answer

    def wait_until_stopped(self) -> None:
        status = Path(f"/proc/{self.pid}/stat")
        until(lambda: status.read_text().rpartition(")")[2].split()[0] == "T")

    def go_on(self) -> None:
        os.kill(self.pid, signal.SIGCONT)

    def kill(self) -> None:
        if self._orders.closed:
            return
        self._process.kill()
        self._process.join()
        self._process.close()  # now: the collector may run while `os` is replaced
        self._orders.close()

    def __enter__(self) -> Agent:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()


class Child:
    """A forked process with a pipe to this one, in which `work` is given the pipe's writing end."""

    def __init__(self, work: Callable[[int], object]) -> None:
        self.said, saying = os.pipe()
        self.pid = os.fork()
        if not self.pid:
            status = 1
            try:
                sys.settrace(None)  # nobody collects what coverage counts here
                os.close(self.said)
                work(saying)
                status = 0
            finally:
                os._exit(status)
        os.close(saying)
        self._status: int | None = None

    def read(self, limit: float) -> bytes:
        """What it writes within that time; b"" if nothing, or if it has ended."""
        waiting = select.poll()  # not select, which rejects descriptors from 1024 on
        waiting.register(self.said, select.POLLIN)
        return os.read(self.said, 1 << 16) if waiting.poll(max(limit, 0.0) * 1000) else b""

    def read_to_end(self) -> bytes:
        output = b""
        while piece := self.read(LIMIT):
            output += piece
        return output

    def kill(self) -> None:
        if self._status is None:
            os.kill(self.pid, signal.SIGKILL)
            self.wait()

    def wait(self) -> int:
        """How it ended: the exit status, or minus the signal."""
        if self._status is None:
            deadline = time.monotonic() + LIMIT
            while not (ended := os.waitpid(self.pid, os.WNOHANG))[0]:
                if time.monotonic() > deadline:
                    os.kill(self.pid, signal.SIGKILL)
                    os.waitpid(self.pid, 0)
                    raise AssertionError("the child hangs")
                time.sleep(0.001)
            self._status = os.waitstatus_to_exitcode(ended[1])
        return self._status

    def __enter__(self) -> Child:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()
        os.close(self.said)


def in_forked_child(work: Callable[[], R]) -> R:
    """The result of `work`, or the error that it raises, as it comes out in a child of this process."""

    def report(saying: int) -> None:
        try:
            outcome: object = work()
        except Exception as error:  # noqa: BLE001 - whatever it is, the test wants to see it
            outcome = error
        Connection(saying, readable=False).send_bytes(pickle.dumps(outcome))

    with Child(report) as child:
        reading = Connection(os.dup(child.said), writable=False)
        assert reading.poll(LIMIT), "the child hangs"
        outcome = pickle.loads(reading.recv_bytes())
        reading.close()
    if isinstance(outcome, Exception):
        raise outcome
    result: R = outcome
    return result
