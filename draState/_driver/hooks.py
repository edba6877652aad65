"""What the author of a driver writes: how to set up and tear down devices. ClaimPreparer does everything else."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from .._claims.state import Device, DriverState
from .._draplugin import ClaimRef
from .._errors import DRAError
from .claim import DriverClaim


class DriverHooks(ABC):
    """Subclass this. Calls for one claim never overlap; calls for different claims come from different threads.

    set_up and tear_down must be idempotent: after a crash or a failure they are called again, even if they were
    half done. An exception from a hook becomes the error that kubelet gets for this claim.
    """

    driver: str  # its name, as in ResourceClaims

    @property
    def chooses(self) -> bool:
        """True if there is something to choose: then claims are recorded one at a time."""
        return type(self).choose is not DriverHooks.choose

    @abstractmethod
    def look_up(self, ref: ClaimRef) -> DriverClaim:
        """Return the current allocation from the API server: read_allocation reads it from a ResourceClaim object.

        Raise ClaimGone if there is none, and ServerUnreachable if there was no connection: only then is a claim
        answered from memory. Any other exception means that the server refused to answer, and the prepare fails.
        It runs in its own threads, and the ClaimPreparer waits for it only for a limited time.
        """

    def check(self, claim: DriverClaim) -> None:  # noqa: B027 - most drivers have nothing to refuse
        """Raise ClaimInvalid if this node cannot serve the claim. Nothing has been changed at this point."""

    def choose(self, claim: DriverClaim, held: Mapping[str, DriverClaim]) -> Any:
        """Choose what the scheduler leaves to the node, such as a VF or CPUs, or note what the host looked like.

        The result, any JSON value, is durable as the claim's `driver_data` before set_up begins, and given to set_up
        and tear_down, also after a kill or a reboot. It is made once per allocation, and one at a time: `held` has all
        other claims of this driver, by UID, with what was chosen for them. Of a damaged claim it has what its bytes
        still show, or None: then raise, or ask the hardware.
        """
        return None

    @abstractmethod
    def set_up(self, claim: DriverClaim) -> DriverClaim:
        """Make the devices ready. Return the claim with their CDI ids and, if wanted, other `driver_data`."""

    def refresh(self, claim: DriverClaim) -> None:  # noqa: B027 - most drivers have nothing to put back
        """Put back what others may have removed. Called when a claim that is set up is prepared again or restored.

        A pod may be using its devices. If this raises during restore, the next prepare sets the claim up again.
        """

    @abstractmethod
    def tear_down(self, claim: DriverClaim) -> None:
        """Undo set_up, as far as it got. `driver_data` is what set_up returned or, if it did not, what was chosen."""

    def users(self, claim: DriverClaim) -> Sequence[str]:
        """Who still uses the devices, for people; asked before a release. Raise DRAError if you cannot tell.

        An orphan may be in use: its container runs until it ends, whatever the API server says.
        """
        raise DRAError("this driver cannot tell who uses a device")

    def find(self, uid: str) -> ClaimRef | None:
        """Search the API server for a claim whose name is lost with its record. None if you cannot.

        Raise ClaimGone if there is none, and otherwise what look_up raises.
        """
        return None

    def traces(self) -> Iterable[str]:
        """The UIDs of all claims that the hardware or the CDI folder shows to be set up in this boot.

        One without a record means that the state directory was lost. Its devices stay held.
        """
        return ()

    def trace(self, uid: str) -> DriverState | None:
        """What this node shows of one claim whose record is damaged or lost: devices with CDI ids, and driver_data."""
        return None

    def same_device(self, one: Device, other: Device) -> bool:
        """True if two devices of one name in different pools are the same hardware.

        True by default, because pools get renamed. Override it if your device names are unique only per pool.
        """
        return True
