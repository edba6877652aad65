"""An agent in a process of its own, whose system calls the kernel refuses: for lack of resources, or through strace."""

from __future__ import annotations

import ctypes
import os
import resource
import sys
from collections.abc import Callable
from contextlib import suppress
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any
from unittest import mock

from checkpointmanager import CheckpointError, CheckpointManager

from ..checkpointmanager import programs
from ..checkpointmanager.processes import Agent

OLD, NEW = "old", "new" * 1000
KEYS = ("a", "b", "c")

Manager = CheckpointManager[Any]


def _batch(manager: Manager) -> None:
    with manager.batch() as batch:
        for key in KEYS:
            batch.create_checkpoint(key, NEW)


CHANGES: dict[str, Callable[[Manager], object]] = {
    "create": lambda manager: manager.create_checkpoint("new", NEW),
    "overwrite": lambda manager: manager.create_checkpoint("a", NEW),
    "update": lambda manager: manager.update_checkpoint("a", lambda _: NEW),
    "remove": lambda manager: manager.remove_checkpoint("a"),
    "batch": _batch,
}


def found(manager: Manager) -> dict[str, Any]:
    """What it serves; nothing of it is damaged."""
    loaded = manager.load()
    assert not loaded.problems
    return {key: checkpoint.data for key, checkpoint in loaded.checkpoints.items()}


def found_in(directory: Path) -> dict[str, Any]:
    """What a reader of the directory sees."""
    with CheckpointManager(directory, read_only=True) as manager:
        return found(manager)


def error_of(victim: Agent, change: str) -> Any:
    try:
        victim.ask("change", change)
    except CheckpointError as error:
        return error
    return None


class Obedient(programs.RemoteAgent):
    """Makes one of CHANGES, and can be starved of resources first."""

    def change(self, name: str) -> None:
        CHANGES[name](self.manager)

    def recover(self, key: str) -> str:
        return self.manager.recover_checkpoint(key, rollback=True).outcome

    def reset(self) -> None:
        """Back to the state from which each change starts; the manager forgets what it has learned."""
        for key in KEYS:
            self.manager.create_checkpoint(key, "older")
            self.manager.create_checkpoint(key, OLD)
        self.manager.remove_checkpoint("new")

    def limit_file_size(self, size: int) -> None:
        _, most = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (size if size >= 0 else most, most))

    def use_up_descriptors(self, spare: int) -> None:
        """From now on only `spare` more files can be open at a time."""
        _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (64, most))
        self._used: list[int] = []
        with suppress(OSError):
            while True:
                self._used.append(os.dup(0))
        self.give_back_descriptors(spare)

    def give_back_descriptors(self, count: int) -> None:
        for descriptor in self._used[:count]:
            os.close(descriptor)
        del self._used[:count]

    def used_descriptors(self) -> int:
        return len(self._used)


def serve(orders: Connection) -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(0x59616D61, ctypes.c_ulong(-1), 0, 0, 0)  # PR_SET_PTRACER, ANY: strace is no parent
    with mock.patch.object(programs, "RemoteAgent", Obedient):
        programs.serve(orders)


def victim() -> Agent:
    """An agent that runs Obedient, and lets itself be traced."""
    return Agent(serve)
