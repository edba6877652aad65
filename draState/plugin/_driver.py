"""What the author of a driver writes. `serve` does everything else."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias, TypeVar

from .. import Device as ClaimDevice
from .. import DriverClaim, Health
from .._health.device import DEFAULT_TIMEOUT
from . import _grammar as grammar
from ._inventory import Counters, Device, NetworkPool

T = TypeVar("T")
Hook: TypeAlias = T | Awaitable[T]  # hooks may be functions or coroutines
# Variables that a container gets for a device, for the claim it comes from, and for what the scheduler decided.
DEVICE_VARIABLE, CLAIM_VARIABLE, ALLOCATION_VARIABLE = OWN_VARIABLES = ("DRA_DEVICE_", "DRA_CLAIM_", "DRA_ALLOCATION_")


@dataclass(frozen=True, slots=True)
class PreparedDevice:
    """What a container gets with one device of a claim, in addition to what the `Device` itself says.

    `mounts` and `hooks` are as in CDI 0.6.0, such as {"hostPath": …, "containerPath": …}. `config`, any JSON value,
    is kept for each pod of the claim in the PodConfigStore below the plugin folder. `status` is shown in the claim's
    `status.devices` until the claim is given back, and has the same form: {"conditions": [{"type": "Ready"}], "data":
    …, "networkData": …}. A condition is "True", with the reason "SetUp" and the time of now, unless it says otherwise.
    """

    device: ClaimDevice
    env: Mapping[str, str] = field(default_factory=dict)  # variables of the container
    device_nodes: Sequence[str] = ()  # paths on the host
    mounts: Sequence[Mapping[str, Any]] = ()
    hooks: Sequence[Mapping[str, Any]] = ()
    annotations: Mapping[str, str] = field(default_factory=dict)  # of the CDI device
    config: Any = None
    status: Mapping[str, Any] | None = None

    def __post_init__(self) -> None:
        check_edits(self.env, self.annotations)


def check_edits(env: Mapping[str, str], annotations: Mapping[str, str]) -> None:
    """Raises ValueError if no container can get these: for configs from claims. The error never quotes them."""
    for name, value in env.items():
        try:
            grammar.environment(name, value)
        except ValueError as error:
            raise ValueError(f"env: {error}") from None
        if name.startswith(OWN_VARIABLES):
            raise ValueError(f"env: names that begin with {' or '.join(OWN_VARIABLES)} are the plugin's own")
    if not all(map(grammar.is_qualified_key, annotations)):
        raise ValueError("annotations: a name is one of Kubernetes' annotations, such as example.com/mode")


@dataclass(frozen=True, slots=True)
class Finding:
    """The health of one device, and why. It counts for `timeout` seconds."""

    health: Health
    message: str = ""  # why, for people
    timeout: float = DEFAULT_TIMEOUT


class Driver(ABC):
    """Subclass this. Each hook is a function, which runs in a thread, or a coroutine, which runs on the event loop.

    Calls for one claim never overlap; calls for different claims do. set_up and tear_down must be idempotent: after a
    crash or a failure they are called again, even if they were half done. An exception becomes the error that
    kubelet gets for this claim, and kubelet tries again.
    """

    name: str  # as in DeviceClasses and ResourceClaims, such as "nic.example.com"
    pool: str = ""  # the name of this node's pool; the node's own if empty

    @abstractmethod
    def devices(self) -> Hook[Iterable[Device]]:
        """The devices of this node. Asked every second: changes are published, and an exception changes nothing."""

    def network_pools(self) -> Hook[Iterable[NetworkPool]]:
        """Devices that belong to no single node. Every node that has such a pool publishes it."""
        return ()

    def shared_counters(self) -> Hook[Counters]:
        """What devices of this node use up together, such as the memory of a partitioned card.

        {"card-0": {"memory": "40Gi"}}; a Device that takes part of it says so in `consumes_counters`.
        """
        return {}

    def check(self, claim: DriverClaim) -> Hook[None]:  # noqa: B027 - most drivers have nothing to refuse
        """Raise ClaimInvalid if this node cannot serve the claim, as for its configs. Nothing was changed so far."""

    def choose(self, claim: DriverClaim, held: Mapping[str, DriverClaim]) -> Hook[Any]:
        """Choose what the scheduler leaves to the node, such as a VF or CPUs, or note what the host looked like.

        The result, any JSON value, is durable as the claim's `driver_data` before set_up begins, and given to all
        later hooks, also after a kill or a reboot. It is made once per allocation, and one at a time: `held` has all
        other claims of this driver, by UID, with what was chosen for them. Of a damaged claim it has what its bytes
        still show, or None: then raise, or ask the hardware. Users of the node can read what was chosen.
        """
        return None

    @abstractmethod
    def set_up(self, claim: DriverClaim) -> Hook[Iterable[PreparedDevice] | None]:
        """Make the devices of the claim ready. Return one PreparedDevice for each, or None if there is nothing to add.

        The CDI file is written when this returns. A claim that is prepared again in this boot is not set up again.
        """

    def refresh(self, claim: DriverClaim) -> Hook[None]:  # noqa: B027 - most drivers have nothing to put back
        """Put back what others may have removed, apart from the CDI file; called after a restart and when asked again.

        A pod may be using its devices. If this raises after a restart, the next prepare sets the claim up again.
        """

    @abstractmethod
    def tear_down(self, claim: DriverClaim) -> Hook[None]:
        """Undo set_up, as far as it got, for the devices and the `driver_data` of the claim."""

    def health(self) -> Hook[Mapping[str, Finding]]:
        """The health of devices, by name. Asked every second. Others are judged by their device nodes."""
        return {}
