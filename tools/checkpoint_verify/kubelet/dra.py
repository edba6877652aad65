"""dra_manager_state as each kubelet version judges it, and dra_health_state, the last health that drivers reported.

The newest version's verdict on dra_manager_state is draState's own. dra_health_state has no checksum.
"""

from __future__ import annotations

from draState import KubeletStateInvalid, read_dra_health_state
from draState.kubelet import Node, Object, judge_dra_manager_state

from .verdict import Judgement, UnverifiedState, Verdict, damaged, member_warnings, valid, version_name

OLD_FORM = "pre-1.31"
TEXT_FORM_SINCE = 31


def is_old_form(document: Node) -> bool:
    """True if this is certainly the form of kubelet 1.26 to 1.30, under any file name."""
    if not isinstance(document, Object) or judge_dra_manager_state(document).form != "entries":
        return False
    entries = document.get("ENTRIES")
    return not isinstance(entries, list) or all(_is_claim(entry) for entry in entries)


def _is_claim(entry: Node) -> bool:
    return isinstance(entry, Object) and isinstance(entry.get("CLAIMUID"), str)


class ClaimState:
    """One DRA manager checkpoint, to be judged by any kubelet version."""

    def __init__(self, document: Node) -> None:
        self._file = judge_dra_manager_state(document)
        self._unverified = UnverifiedState(document, OLD_FORM, refused_since=TEXT_FORM_SINCE)

    def judge(self, minor: int) -> Judgement:
        """What kubelet 1.`minor` makes of the document."""
        return self._judge(minor).warn(*member_warnings(minor, *self._file.decodes))

    def _judge(self, minor: int) -> Judgement:
        file, version = self._file, version_name(minor)
        if file.damage:
            form = OLD_FORM if file.form == "entries" else file.form
            detail = f"Kubelet {version} refuses this file: {file.damage}."
            stored = None if file.computed is None else file.stored
            return damaged(form, file.reason, detail, file.computed, stored)
        if file.form == "entries":
            return self._unverified.judge(minor)
        if minor < TEXT_FORM_SINCE:
            detail = f"Kubelet {version} refuses this file as corrupted: it reads only the form before 1.31."
            return damaged(file.form, "other-version", detail, None, file.stored)
        loaded = valid(file.form, f"Kubelet {version} loads this file.", file.stored)
        if file.has_data:
            return loaded
        return loaded.warn("The file has no Data: kubelet takes it for an empty state and forgets all claims.")


HEALTH_FORM = "v1"
HEALTH_KNOWN_IN = (37,)
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

    def __init__(self, blob: bytes) -> None:
        self._problem = ""
        try:
            read_dra_health_state(blob)
        except KubeletStateInvalid as invalid:
            self._problem = str(invalid)

    def judge(self, minor: int) -> Judgement:
        """Parsing is all that can be checked."""
        if self._problem:
            detail = f"Kubelet {version_name(minor)} refuses this file: {self._problem}."
            return damaged(HEALTH_FORM, "wrong-shape", detail)
        detail = "The content can be read; this file has no checksum, so it is not verified."
        return Judgement(Verdict.UNKNOWN, HEALTH_FORM, NO_CHECKSUM, detail, loads=True)
