"""Drivers as an author would write them, and a program that serves them by name."""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from draState.plugin import (
    Device,
    Driver,
    DriverClaim,
    Finding,
    Health,
    PreparedDevice,
    Settings,
    add_options,
    serve,
)

FOLDER = "DRIVER_FOLDER"  # in the environment: where the "hardware" is


def folder() -> Path:
    return Path(os.environ[FOLDER])


class Gpu(Driver):
    """Every hook is a plain function; setting up means a file."""

    name = "gpu.example.com"

    def devices(self) -> list[Device]:
        return [Device(f"gpu-{n}", attributes={"model": "a", "index": n}, capacity={"memory": "16Gi"}) for n in (0, 1)]

    def set_up(self, claim: DriverClaim) -> list[PreparedDevice]:
        (folder() / f"gpu-{claim.uid}").touch()
        prepared = [PreparedDevice(device, env={"MODE": "fast"}) for device in claim.devices]
        times = folder() / "times"
        return prepared * (int(times.read_text()) if times.exists() else 1)

    def tear_down(self, claim: DriverClaim) -> None:
        (folder() / f"gpu-{claim.uid}").unlink(missing_ok=True)


class Nic(Driver):
    """Every hook is a coroutine. The node chooses a VF, and set_up may fail once."""

    name = "nic.example.com"

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None

    async def devices(self) -> list[Device]:
        self._loop = asyncio.get_running_loop()
        return [Device(name, attributes={"ifName": name}) for name in ("eth1", "eth2")]

    async def choose(self, claim: DriverClaim, held: Mapping[str, DriverClaim]) -> dict[str, int]:
        taken = {other.driver_data["vf"] for other in held.values()}
        return {"vf": next(vf for vf in range(8) if vf not in taken)}

    async def set_up(self, claim: DriverClaim) -> list[PreparedDevice]:
        assert asyncio.get_running_loop() is self._loop, "all coroutines run on one event loop"
        vf = claim.driver_data["vf"]
        (folder() / f"vf-{vf}").write_text(claim.uid)
        if (folder() / "broken").exists():
            raise OSError("the firmware does not answer")
        status = {
            "conditions": [
                {"type": "Ready"},
                {"type": "LinkUp", "status": "False", "reason": "NoCarrier", "message": "no cable"},
            ],
            "data": {"vf": vf},
            "networkData": {"interfaceName": "net1", "ips": ["10.0.0.7/24"], "hardwareAddress": "02:00:00:00:00:01"},
        }
        env = {"VF": str(vf)}
        return [PreparedDevice(device, env=env, config={"vf": vf}, status=status) for device in claim.devices]

    async def tear_down(self, claim: DriverClaim) -> None:
        (folder() / f"vf-{claim.driver_data['vf']}").unlink(missing_ok=True)

    async def health(self) -> dict[str, Finding]:
        if (folder() / "unknown").exists():
            raise OSError("no answer")
        up = not (folder() / "down").exists()
        return {"eth1": Finding(Health.HEALTHY if up else Health.UNHEALTHY, "" if up else "no link", timeout=60)}


DRIVERS: Mapping[str, Any] = {"gpu": Gpu, "nic": Nic}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("drivers", nargs="+")
    parser.add_argument("--devices", help="ignored: these drivers know their devices")
    add_options(parser)
    options = parser.parse_args()
    logging.basicConfig(level="INFO", stream=sys.stderr)
    settings = Settings.of(options)
    if len(options.drivers) > 1:  # each has folders of its own
        settings = replace(settings, plugin_dir="", state_dir=None)
    serve([DRIVERS[name]() for name in options.drivers], settings)


if __name__ == "__main__":
    main()
