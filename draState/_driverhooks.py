"""What the author of a driver writes: how devices are set up and torn down. All else is the ClaimPreparer's."""

from __future__ import annotations

from abc import ABC, abstractmethod

from ._claimstate import Device
from ._driver import ClaimRef
from ._driverclaim import DriverClaim


class DriverHooks(ABC):
    """A base class. Calls for one claim never overlap; calls for different claims come from different threads.

    set_up and tear_down must be idempotent: after a crash or a failure they are called again, also for what is
    half done. What a hook raises is the error that kubelet gets for this claim.
    """

    driver: str  # its name, as in ResourceClaims

    @abstractmethod
    def look_up(self, ref: ClaimRef) -> DriverClaim:
        """The present allocation, from the API server: read_allocation makes it from a ResourceClaim object.

        Raise ClaimGone where there is none, and anything else where nobody could be asked. It has its own threads,
        and the ClaimPreparer waits for it only for a limited time.
        """

    def check(self, claim: DriverClaim) -> None:  # noqa: B027 - most drivers have nothing to refuse
        """Raise ClaimInvalid if this node cannot serve the claim. Nothing has been changed by then."""

    @abstractmethod
    def set_up(self, claim: DriverClaim) -> DriverClaim:
        """Make the devices ready. Return the claim with their CDI ids and, if wanted, `driver_data`."""

    def refresh(self, claim: DriverClaim) -> None:  # noqa: B027 - most drivers have nothing to put back
        """The claim is set up, and asked for again or found at a start: put back what others may have removed.

        A pod may be using its devices. If this raises at a start, the claim is set up again when it is asked for.
        """

    @abstractmethod
    def tear_down(self, claim: DriverClaim) -> None:
        """Undo set_up, as far as it went. `driver_data` is what set_up returned, None if it did not."""

    def devices_of_damaged(self, uid: str) -> tuple[Device, ...]:
        """What a claim holds whose file is damaged, as far as the hardware or the CDI folder can say."""
        return ()

    def same_device(self, one: Device, other: Device) -> bool:
        """Whether two devices of one name in different pools are the same hardware.

        So it is unless you know better: pools get renamed.
        """
        return True
