"""A DRA driver as a kubelet plugin: you write the hooks, `serve` does the rest (extra [agent]).

    class Nic(Driver):
        name = "nic.example.com"

        def devices(self):
            return [Device("eth1", attributes={"speed": 100})]

        def set_up(self, claim):
            return [PreparedDevice(device, env={"NIC": device.device_name}) for device in claim.devices]

        def tear_down(self, claim): ...

    serve(Nic())

The pieces can also be used one by one.
"""

from .. import ClaimInvalid, DriverClaim, Health
from ._apiserver.client import ApiError, ApiServer
from ._apiserver.kubeconfig import from_kubeconfig, in_cluster
from ._driver import Driver, Finding, PreparedDevice, check_edits
from ._inventory import Counters, Device, Inventory, NetworkPool
from ._reports.devicestatus import Condition, DeviceStatus, NetworkData
from ._serve import serve
from ._services.heldclaims import HeldClaim, HeldClaims
from ._settings import Settings, SettingsError, add_options

__all__ = [
    "ApiError",
    "ApiServer",
    "ClaimInvalid",
    "Condition",
    "Counters",
    "Device",
    "DeviceStatus",
    "Driver",
    "DriverClaim",
    "Finding",
    "Health",
    "HeldClaim",
    "HeldClaims",
    "Inventory",
    "NetworkData",
    "NetworkPool",
    "PreparedDevice",
    "Settings",
    "SettingsError",
    "add_options",
    "check_edits",
    "from_kubeconfig",
    "in_cluster",
    "serve",
]
