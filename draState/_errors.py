"""Errors about claims. Errors of the disk are those of checkpointmanager."""

from __future__ import annotations

from collections.abc import Mapping

from checkpointmanager import CheckpointError


class DRAError(Exception):
    """The base of this package's errors. Catch it together with CheckpointError, the base of the disk's errors."""


class ClaimInvalid(DRAError):
    """A claim of the pod cannot be prepared or used in its current state. Nothing was changed.

    The message says why: not allocated, not reserved for the pod, of another driver. Try again when that has changed.
    """


class ClaimGone(ClaimInvalid):
    """The API server no longer has the claim, or no longer gives it the devices that this driver holds for it.

    If the driver still holds devices for it, the claim is an orphan: release it.
    """


class ServerUnreachable(DRAError):
    """The API server cannot be reached at all: there was no connection, and so no answer.

    Raise it from `look_up`. Only then is a claim that this process has prepared answered from memory.
    Other claims fail: try again when the server is back.
    """


class ClaimInUse(DRAError):
    """The claim still has its devices in the API server, or a container still uses them, or nobody can tell.

    Releasing it would take a device from a pod. Delete the pod instead, or release with force.
    """


class DeviceHeld(DRAError):
    """Another claim holds the device, and the two cannot share it. The message names that claim.

    Nothing was set up. Try again when that claim is unprepared; if kubelet never does that, it is an orphan.
    """


class ClaimConflict(DRAError):
    """Another claim (`other`) of the same name must be unprepared before this one (`uid`) can be prepared.

    It is unprepared when its pods are gone. Try again then.
    """

    def __init__(self, name: tuple[str, str], uid: str, other: str) -> None:
        super().__init__(
            f"claim {'/'.join(name)} has UID {uid}, but another claim of that name (UID {other}) is still prepared on "
            "this node; try again once its pods are gone and it is unprepared"
        )
        self.uid = uid
        self.other = other


class ClaimNotPrepared(DRAError):
    """A container's claim is not ready to be used. Call prepare_resources for its pod first."""


class OperationFailed(DRAError):
    """Some claims failed; `failures` has the reason for each UID. Successes are recorded."""

    def __init__(self, operation: str, failures: Mapping[str, str]) -> None:
        listed = "; ".join(f"claim {uid}: {why}" for uid, why in failures.items())
        super().__init__(f"{operation} failed for {len(failures)} claim{'s' if len(failures) != 1 else ''}: {listed}")
        self.failures = dict(failures)


class PrepareFailed(OperationFailed):
    """Preparing the pod failed for some of its claims. Repeat the call to retry them."""

    def __init__(self, failures: Mapping[str, str]) -> None:
        super().__init__("prepare", failures)


class UnprepareFailed(OperationFailed):
    """Some claims could not be unprepared. They stay, marked as unpreparing; repeat the call to retry them."""

    def __init__(self, failures: Mapping[str, str]) -> None:
        super().__init__("unprepare", failures)


class ReconcileRefused(DRAError):
    """The list of active pods is not known to be complete: acting on it would free devices in use.

    Nothing was changed. Call reconcile with complete=True once all pods of the node are known.
    """


class KubeletStateInvalid(DRAError):
    """Kubelet would not load these bytes as its dra_manager_state or dra_health_state. Never quotes data.

    Nothing was imported. Run checkpoint-verify on the file to see what is wrong with it.
    """

    def __init__(self, why: str, file: str = "dra_manager_state") -> None:
        super().__init__(f"not a valid {file}: {why}")


LONGEST = 300  # characters of a foreign error that are passed on


def in_one_line(error: Exception) -> str:
    """An error for kubelet and the log. The text of a client's error may have many lines, and quote an answer."""
    first = next(iter(str(error).splitlines()), "")
    if len(first) > LONGEST:
        first = first[:LONGEST] + "…"
    if isinstance(error, DRAError | CheckpointError | OSError) and first:
        return first
    return f"{type(error).__name__}: {first}".removesuffix(": ")
