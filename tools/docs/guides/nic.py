"""A driver for network cards. Each pod that gets a card also gets an address, which this node chooses."""

import os
from collections.abc import Mapping
from pathlib import Path

from draState.plugin import Device, Driver, DriverClaim, PreparedDevice, serve

HOST = Path(os.environ.get("HOST_ROOT", "/"))  # where the host's root is mounted
ADDRESSES = [f"10.0.0.{number}" for number in range(1, 15)]


class Nic(Driver):
    name = "nic.example.com"

    def devices(self) -> list[Device]:
        return [Device(card, attributes={"ifName": card}) for card in ("eth1", "eth2")]

    async def choose(self, claim: DriverClaim, held: Mapping[str, DriverClaim]) -> str:
        taken = {other.driver_data for other in held.values()}
        return next(address for address in ADDRESSES if address not in taken)

    async def set_up(self, claim: DriverClaim) -> list[PreparedDevice]:
        for device in claim.devices:
            address_file(device.device_name).write_text(claim.driver_data)
        return [PreparedDevice(device, env={"NIC_ADDRESS": claim.driver_data}) for device in claim.devices]

    async def tear_down(self, claim: DriverClaim) -> None:
        for device in claim.devices:
            address_file(device.device_name).unlink(missing_ok=True)


def address_file(card: str) -> Path:
    """Stands for the hardware: a real driver would run `ip address replace`."""
    return HOST / f"{card}.address"


if __name__ == "__main__":
    serve(Nic())
