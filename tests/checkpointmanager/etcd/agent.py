"""A separate process that owns a prefix, writes as fast as it can, and reports on stdout what it does.

    python -m tests.checkpointmanager.etcd.agent LABEL PREFIX TTL ENDPOINT...

Each line is a word and a number: `begin 7`, then `done 7`, `doubt 7`, `failed 7` or `locked 7`. After `locked` it ends.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from checkpointmanager import CheckpointManager, CheckpointWriteFailed, DirectoryLocked
from checkpointmanager.etcd import EtcdStore

ROOT = Path(__file__).parents[3]
KEY = "counter"


def main(label: str, prefix: str, ttl: str, *endpoints: str) -> None:
    store = EtcdStore(endpoints, prefix, ttl=float(ttl), owner=label, lock_timeout=60)
    manager = CheckpointManager(store)
    first = manager.get_checkpoint(KEY, None)
    number = first.data["number"] if first else 0
    while True:
        number += 1
        print("begin", number, flush=True)
        try:
            manager.create_checkpoint(KEY, {"by": label, "number": number})
            outcome = "done"
        except DirectoryLocked:
            outcome = "locked"
        except CheckpointWriteFailed as error:
            outcome = "doubt" if error.in_doubt else "failed"
        print(outcome, number, flush=True)
        if outcome == "locked":
            return


class AgentProcess:
    """Such a process, started and observed by a test."""

    def __init__(self, label: str, prefix: str, ttl: int, endpoints: Sequence[str]) -> None:
        command = [sys.executable, "-m", __name__, label, prefix, str(ttl), *endpoints]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, cwd=ROOT, text=True, env=dict(os.environ))
        self.done: list[int] = []  # acknowledged
        self.locked = False

    def signal(self, number: int) -> None:
        self._process.send_signal(number)

    def follow(self, acknowledgements: int) -> None:
        """Read its output until it reports so many more acknowledgements, or ends."""
        wanted = len(self.done) + acknowledgements
        assert self._process.stdout
        while len(self.done) < wanted and (line := self._process.stdout.readline()):
            word, number = line.split()
            if word == "done":
                self.done.append(int(number))
            self.locked = self.locked or word == "locked"

    def kill(self) -> None:
        self._process.kill()
        self._process.communicate()

    def __enter__(self) -> AgentProcess:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()


if __name__ == "__main__":
    main(*sys.argv[1:])
