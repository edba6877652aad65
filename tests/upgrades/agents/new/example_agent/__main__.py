"""One life of the agent: obeys the orders on standard input, and prints at its end what it holds.

python -m example_agent DIRECTORY [--sharing] < orders
"""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from typing import Any

from checkpointmanager import CheckpointManager

from . import __version__
from .lease import LEASES, Device, Lease, Place


class Agent:
    """Every order is a method."""

    def __init__(self, manager: CheckpointManager[Lease]) -> None:
        self._manager = manager

    def create(self, key: str) -> None:
        lease = Lease(f"release {__version__}", devices=[Device("first", numa=1)], place=Place("there", {"r1": 1}))
        self._manager.create_checkpoint(key, lease, overwrite=False)

    def renew(self, key: str, times: int = 1) -> None:
        def renewed(lease: Lease) -> Lease:
            lease.seconds += 1
            return lease

        for _ in range(times):
            self._manager.update_checkpoint(key, renewed)

    def use(self, key: str) -> None:
        def used(lease: Lease) -> Lease:
            lease.devices = [device.used() for device in lease.devices]
            return lease

        self._manager.update_checkpoint(key, used)

    def add(self, key: str, device: str) -> None:
        def added(lease: Lease) -> Lease:
            lease.devices.insert(0, Device(device, numa=len(lease.devices)))
            return lease

        self._manager.update_checkpoint(key, added)

    def tag(self, key: str, tag: str) -> None:
        def tagged(lease: Lease) -> Lease:
            lease.tags.append(tag)
            place = lease.place or Place("nowhere")
            place.racks[tag] = len(lease.tags)
            lease.place = place
            return lease

        self._manager.update_checkpoint(key, tagged)

    def remove(self, key: str) -> None:
        self._manager.remove_checkpoint(key)


def main() -> None:
    directory, *options = sys.argv[1:]
    with CheckpointManager(directory, LEASES, sharing="--sharing" in options) as manager:
        agent = Agent(manager)
        for verb, *arguments in json.load(sys.stdin):
            getattr(agent, verb)(*arguments)
        loaded = manager.load()
    held = {key: asdict(checkpoint.data) for key, checkpoint in loaded.checkpoints.items()}
    json.dump({"version": __version__, "held": held, "problems": sorted(loaded.problems)}, sys.stdout, default=_plain)


def _plain(value: Any) -> Any:
    return repr(value)


if __name__ == "__main__":
    main()
