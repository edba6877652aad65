"""Lets a process die, or a system call fail, at each call of a piece of work in turn."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Protocol, TypeVar

from checkpointmanager import CheckpointError
from draState import DRAError
from tests.checkpointmanager.faults import Faults, Killed, Mode, injected


class Closable(Protocol):
    def close(self) -> None: ...


A = TypeVar("A", bound=Closable)


def every_death(folder: Path, given: Callable[[Path], A], work: Callable[[A], object]) -> Iterator[Path]:
    """A directory for each system call of `work` on the agent that `given` made there: it died before that call.

    The last one is that of an agent that lived.
    """
    for at in itertools.count():
        agent = given(folder / str(at))
        with injected(Faults(Killed(), at, Mode.DEAD)) as faults, suppress(Killed):
            work(agent)
        agent.close()
        yield folder / str(at)
        if faults.failed is None:
            return


def every_failure(
    folder: Path, given: Callable[[Path], A], work: Callable[[A], object], errno: int
) -> Iterator[tuple[Path, A]]:
    """The same, where the call fails with `errno` and the agent lives on; it is closed afterwards."""
    for at in itertools.count():
        agent = given(folder / str(at))
        with injected(Faults(OSError(errno, "injected"), at)) as faults, suppress(CheckpointError, DRAError):
            work(agent)
        yield folder / str(at), agent
        agent.close()
        if faults.failed is None:
            return
