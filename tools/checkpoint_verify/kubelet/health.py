"""dra_health_state: the last health that drivers reported. It has no checksum, so it cannot be verified."""

from __future__ import annotations

from draState._kubelet.gotypes import decode
from draState._kubelet.healthfile import STATE
from draState._kubelet.syntax import Node, Object

from . import versions
from .verdict import Judgement, Verdict, damaged

FORM = "v1"
KNOWN_IN = (37,)
NO_CHECKSUM = "no-checksum"

_WORDS = frozenset({"HEALTHY", "UNHEALTHY", "UNKNOWN"})


def is_health(document: Object) -> bool:
    """True if every member is a driver with devices, and every device states its health."""
    drivers = [value for _, value in document.members]
    devices = [value.get("DEVICES") for value in drivers if isinstance(value, Object)]
    if not drivers or len(devices) < len(drivers) or not all(isinstance(one, Object) for one in devices):
        return False
    each = [device for one in devices if isinstance(one, Object) for _, device in one.members]
    return bool(each) and all(isinstance(device, Object) and _states_its_health(device) for device in each)


def _states_its_health(device: Object) -> bool:
    health = device.get("HEALTH")
    return isinstance(health, str) and health.upper() in _WORDS


class HealthState:
    """One such file, as kubelet 1.37 reads it."""

    def __init__(self, document: Node) -> None:
        self._decoded = decode(STATE, document, {})

    def judge(self, minor: int) -> Judgement:
        """Parsing is all that can be checked."""
        if problems := self._decoded.problems:
            detail = f"Kubelet {versions.name(minor)} cannot decode this file: {problems[0]}."
            return damaged(FORM, "wrong-shape", detail)
        detail = "The content can be read; this file has no checksum, so it is not verified."
        return Judgement(Verdict.UNKNOWN, FORM, NO_CHECKSUM, detail, loads=True)
