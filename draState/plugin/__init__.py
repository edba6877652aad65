"""A DRA driver as a kubelet plugin: you write the hooks, `serve` does the rest (extra [agent]).

For Go there is k8s.io/dynamic-resource-allocation/kubeletplugin; this is its place in Python, with durable state.

    class Nic(Driver):
        name = "nic.example.com"

        def devices(self):
            return [Device("eth1", attributes={"speed": 100})]

        def set_up(self, claim):
            return [PreparedDevice(device, env={"NIC": device.device_name}) for device in claim.devices]

        def tear_down(self, claim): ...

    serve(Nic())

Hooks are functions or coroutines. `python -m draState.plugin MODULE:DRIVER` serves a driver, and
draState.plugin.rehearsal plays kubelet and the API server for it.

The pieces of `serve` can be used one by one: AsyncClaimPreparer.open (draState.aio) with DriverHooks of your own, a
SocketServer with a PluginService, a RegistrationService that lists what the socket serves, and a Publisher.
"""

from .. import ClaimInvalid, DriverClaim, Health
from ._apiserver import ApiError, ApiServer
from ._cdi import CdiFolder, device_edits
from ._credentials import Credentials, from_kubeconfig, in_cluster
from ._draplugin import PluginService, RegistrationService
from ._driver import Driver, Finding, PreparedDevice, check_edits
from ._health import HealthStreamService, HealthWatch
from ._heldclaims import HeldClaim, HeldClaims, watch_orphans
from ._inventory import Counters, Device, Inventory, NetworkPool
from ._log import log_to_stderr
from ._publisher import Publisher
from ._serve import serve
from ._settings import Places, Settings, SettingsError, add_options
from ._sockets import SocketServer

__all__ = [
    "ApiError",
    "ApiServer",
    "CdiFolder",
    "ClaimInvalid",
    "Counters",
    "Credentials",
    "Device",
    "Driver",
    "DriverClaim",
    "Finding",
    "Health",
    "HealthStreamService",
    "HealthWatch",
    "HeldClaim",
    "HeldClaims",
    "Inventory",
    "NetworkPool",
    "Places",
    "PluginService",
    "PreparedDevice",
    "Publisher",
    "RegistrationService",
    "Settings",
    "SettingsError",
    "SocketServer",
    "add_options",
    "check_edits",
    "device_edits",
    "from_kubeconfig",
    "in_cluster",
    "log_to_stderr",
    "serve",
    "watch_orphans",
]
