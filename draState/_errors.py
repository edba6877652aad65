"""What can go wrong with claims, apart from the disk: that is told by the errors of checkpointmanager."""

from __future__ import annotations

from collections.abc import Mapping


class DRAError(Exception):
    """The base of the errors of this package; catch it with CheckpointError, which the disk's errors are."""


class ClaimInvalid(DRAError):
    """A claim of the pod cannot be prepared or used as it is now. Nothing was changed.

    The message says why: not allocated, not reserved for the pod, another driver's. Try again when that has changed.
    """


class ClaimGone(ClaimInvalid):
    """The API server has no such claim any more, or does not give it what this driver holds for it.

    What the driver still holds for it is an orphan: release it.
    """


class ClaimInUse(DRAError):
    """The API server still gives the claim what is held for it: releasing it would take a device from a pod.

    Delete the pod instead, or release with force.
    """


class DeviceHeld(DRAError):
    """Another claim has the device, and it cannot be shared. Names that claim.

    Nothing was set up. Try again when that claim is unprepared; if nobody will do that, it is an orphan.
    """


class ClaimConflict(DRAError):
    """Another claim (`other`) of the same name is still here; it has to be unprepared before this one (`uid`).

    It is unprepared when its pods are gone. Try again then.
    """

    def __init__(self, name: tuple[str, str], uid: str, other: str) -> None:
        super().__init__(
            f"claim {'/'.join(name)} has UID {uid}, but UID {other} of the same name is still prepared on this "
            "node; it is unprepared when its pods are gone"
        )
        self.uid = uid
        self.other = other


class ClaimNotPrepared(DRAError):
    """A container's claim is not ready to be used. Call prepare_resources for its pod first."""


class OperationFailed(DRAError):
    """Some claims failed; `failures` has each one's reason by UID. What succeeded is recorded."""

    def __init__(self, operation: str, failures: Mapping[str, str]) -> None:
        listed = "; ".join(f"claim {uid}: {why}" for uid, why in failures.items())
        super().__init__(f"{operation} failed for {len(failures)}: {listed}")
        self.failures = dict(failures)


class PrepareFailed(OperationFailed):
    """Preparing the pod failed for some of its claims; call again to try those."""

    def __init__(self, failures: Mapping[str, str]) -> None:
        super().__init__("prepare", failures)


class UnprepareFailed(OperationFailed):
    """Some claims could not be unprepared; they stay, unpreparing. Call again to try those."""

    def __init__(self, failures: Mapping[str, str]) -> None:
        super().__init__("unprepare", failures)


class ReconcileRefused(DRAError):
    """The list of active pods is not known to be complete: acting on it would free devices in use.

    Nothing was changed. Call reconcile with complete=True once all pods of the node are known.
    """


class KubeletStateInvalid(DRAError):
    """Bytes that kubelet would not load as its dra_manager_state or dra_health_state. Never quotes data.

    Nothing was imported. Run checkpoint-verify on the file to see what is wrong with it.
    """

    def __init__(self, why: str, file: str = "dra_manager_state") -> None:
        super().__init__(f"not a valid {file}: {why}")
