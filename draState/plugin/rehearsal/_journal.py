"""The requests and acknowledgements of the agent, for comparison with what it remembers."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import TextIO

Holdings = Mapping[str, tuple[str, ...]]  # claim UID -> names of its devices


class Journal:
    """Single-threaded. With `file`, every entry is also written there as a line of JSON."""

    def __init__(self, file: TextIO | None = None) -> None:
        self._file = file
        self.prepared: dict[str, tuple[str, ...]] = {}  # acknowledged and not unprepared since
        self.open: dict[str, tuple[str, ...]] = {}  # requested, no answer yet: may or may not exist
        self.acknowledged = 0
        self.problems: list[str] = []

    def asked(self, operation: str, uid: str, devices: Iterable[str]) -> None:
        self._write("asked", operation, uid)
        self.open[uid] = tuple(devices)
        if operation == "unprepare":
            self.prepared.pop(uid, None)

    def answered(self, operation: str, uid: str, devices: Iterable[str] = ()) -> None:
        """Call this after a success: from now on the result must hold, whatever happens to the agent."""
        self._write("answered", operation, uid)
        expected = self.open.pop(uid, ())
        self.acknowledged += 1
        if operation == "unprepare":
            return
        given = tuple(devices)
        if given != expected:
            self.problems.append(f"{uid} was given {given}, and the scheduler said {expected}")
        for other, held in self.prepared.items():
            if other != uid and set(held) & set(given):
                self.problems.append(f"{set(held) & set(given)} was handed to {uid} while {other} has it")
        self.prepared[uid] = given

    def differences(self, remembered: Holdings) -> list[str]:
        """Errors in what the agent remembers. Calls without an answer may or may not have happened."""
        wrong = list(self.problems)
        for uid, devices in self.prepared.items():
            if remembered.get(uid) != devices:
                wrong.append(f"{uid} was acknowledged with {devices}, and is now {remembered.get(uid, 'gone')}")
        for uid in remembered.keys() - self.prepared.keys() - self.open.keys():
            wrong.append(f"{uid} was acknowledged as unprepared, and is still there")
        holders: dict[str, str] = {}
        for uid, devices in remembered.items():
            for device in devices:
                if holders.setdefault(device, uid) != uid:
                    wrong.append(f"{device} is held by {holders[device]} and by {uid}")
        return wrong

    def _write(self, what: str, operation: str, uid: str) -> None:
        if self._file:
            self._file.write(json.dumps({"what": what, "operation": operation, "claim": uid}) + "\n")
