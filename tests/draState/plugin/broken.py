"""Drivers with the classic bugs, each of which works in a demo."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Mapping
from typing import Any

from docs.guides.nic import HOST, Nic, address_file
from draState.plugin import ApiServer, Device, DriverClaim, PreparedDevice, from_kubeconfig

CDI = HOST.parent / "cdi"


class Forgetful(Nic):
    """Chooses in set_up, from what it has in memory."""

    def __init__(self) -> None:
        self.taken: list[str] = []

    async def choose(self, claim: DriverClaim, held: Mapping[str, DriverClaim]) -> str:
        return ""

    async def set_up(self, claim: DriverClaim) -> list[PreparedDevice]:
        self.taken.append(f"10.0.0.{len(self.taken) + 1}")
        return [PreparedDevice(device, env={"NIC_ADDRESS": self.taken[-1]}) for device in claim.devices]


class Lost(Nic):
    """Keeps what tear_down needs in memory."""

    def __init__(self) -> None:
        self.claims: dict[str, DriverClaim] = {}

    async def set_up(self, claim: DriverClaim) -> list[PreparedDevice]:
        self.claims[claim.uid] = claim
        return await super().set_up(claim)

    async def tear_down(self, claim: DriverClaim) -> None:
        await super().tear_down(self.claims[claim.uid])


class Once(Nic):
    """Its set_up fails if it was done before, as `ip address add` does."""

    async def set_up(self, claim: DriverClaim) -> list[PreparedDevice]:
        for device in claim.devices:
            address_file(device.device_name).touch(exist_ok=False)
        return await super().set_up(claim)


class Strict(Nic):
    """Its tear_down, which is not async, fails if there is nothing to undo."""

    def tear_down(self, claim: DriverClaim) -> None:  # type: ignore[override]
        for device in claim.devices:
            address_file(device.device_name).unlink()


class Leaky(Nic):
    """Its tear_down does nothing."""

    async def tear_down(self, claim: DriverClaim) -> None:
        pass


class Renumbered(Nic):
    """Numbers its cards in the order in which it finds them, which another boot changes."""

    def devices(self) -> list[Device]:
        first = int(os.environ["DRA_AGENT_BOOT_ID"].removeprefix("boot-"))
        return [Device(f"eth{number}") for number in (first, first + 1)]


class Stale(Nic):
    """Asks the API server once per claim, so it does not notice that a claim has changed or is gone."""

    def __init__(self) -> None:
        known: dict[str, Mapping[str, Any]] = {}
        ask = ApiServer.claim

        def claim(server: ApiServer, namespace: str, name: str) -> Mapping[str, Any]:
            if name not in known:
                known[name] = ask(server, namespace, name)
            return known[name]

        ApiServer.claim = claim  # type: ignore[assignment, method-assign]


class Fickle(Nic):
    """Sets a running pod up again after a restart, with something else."""

    async def refresh(self, claim: DriverClaim) -> None:
        raise OSError("not as expected")

    async def set_up(self, claim: DriverClaim) -> list[PreparedDevice]:
        queue = f"{os.getpid()}-{claim.uid[:8]}"
        return [PreparedDevice(device, env={"NIC_QUEUE": queue}) for device in claim.devices]


class Tidy(Nic):
    """Removes CDI files that it does not know."""

    def refresh(self, claim: DriverClaim) -> None:
        for path in CDI.iterdir():
            path.unlink()


class Doubling(Nic):
    """Keeps a copy of its CDI files, where the runtime finds it too."""

    def refresh(self, claim: DriverClaim) -> None:
        for path in CDI.iterdir():
            (CDI / "copy.json").write_bytes(path.read_bytes())


class Chatty(Nic):
    """Asks the API server again when a pod ends."""

    def tear_down(self, claim: DriverClaim) -> Any:
        server = ApiServer(from_kubeconfig(str(HOST.parent / "kubeconfig")), timeout=2)
        server.claim(claim.namespace, claim.name)
        return super().tear_down(claim)


class Exclusive(Nic):
    """Opens its hardware as soon as it starts, so that a new version cannot stand by."""

    def __init__(self) -> None:
        self.hardware = open(HOST / "card", "w")  # noqa: SIM115
        fcntl.flock(self.hardware, fcntl.LOCK_EX | fcntl.LOCK_NB)


class Crashing(Nic):
    """Does not survive its own set_up."""

    def set_up(self, claim: DriverClaim) -> Any:
        os._exit(1)


class Dead(Nic):
    """Does not start."""

    def devices(self) -> list[Device]:
        raise OSError("no such card")
