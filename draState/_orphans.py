"""Finds claims that only the driver still knows: kubelet lost its state, or the claim was deallocated."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice

from ._claiminfo import ClaimInfo
from ._driver import ClaimRef
from ._driverclaim import DriverClaim
from ._driverrecords import DriverRecords
from ._errors import ClaimGone, DRAError
from ._lookups import THREADS, Found, LookUps, NotAnswered


@dataclass(frozen=True, slots=True)
class Orphan:
    """A claim that holds devices and that kubelet will not unprepare."""

    uid: str  # of the claim
    why: str  # for people
    since: float = field(default_factory=time.monotonic)  # when this process first saw it, in time.monotonic()

    @property
    def age(self) -> float:
        """Seconds since this process first saw it."""
        return time.monotonic() - self.since


class Orphans:
    """The orphans of one driver, as of the last look."""

    def __init__(self, records: DriverRecords) -> None:
        self._records = records
        self._found: dict[str, Orphan] = {}
        self._looking = threading.Lock()  # one look at a time, or an orphan could be reported as new twice

    def current(self) -> Mapping[str, Orphan]:
        """The orphans, without those released since the last look."""
        return {uid: orphan for uid, orphan in self._found.copy().items() if self._records.get(uid)}

    def look(self, look_ups: LookUps) -> list[Orphan]:
        """Look up every claim whose name is known; returns the new orphans."""
        with self._looking:
            known = dict(self.current())
            before = set(known)
            for claim, found in _found([claim for claim in self._records if any(claim.name)], look_ups):
                if isinstance(found, NotAnswered):
                    continue  # no answer: the claim stays as it was
                if why := self._why(claim, found):
                    known.setdefault(claim.uid, Orphan(claim.uid, why))
                else:
                    known.pop(claim.uid, None)
            self._found = known
            return [orphan for uid, orphan in known.items() if uid not in before]

    def why(self, claim: ClaimInfo, look_ups: LookUps) -> str:
        """Why a claim is an orphan now, or "" if it is not one. Raises DRAError if the API server gives no answer."""
        ((_, found),) = _found([claim], look_ups)
        if isinstance(found, NotAnswered):
            raise DRAError(f"claim {'/'.join(claim.name)} (UID {claim.uid}): it cannot be looked up: {found.why}")
        return self._why(claim, found)

    def _why(self, claim: ClaimInfo, found: Found) -> str:
        if isinstance(found, ClaimGone):
            return str(found)
        if isinstance(found, DriverClaim):
            held = {device.identity for device in self._records.view(claim).devices}
            if held and not held & {device.identity for device in found.devices}:
                return f"claim {'/'.join(claim.name)} (UID {claim.uid}) has other devices now"
        return ""


def _found(claims: Iterable[ClaimInfo], look_ups: LookUps) -> Iterator[tuple[ClaimInfo, Found]]:
    """Look up several claims at a time."""
    waiting = iter(claims)
    while some := list(islice(waiting, THREADS)):
        started = [look_ups.start(_ref(claim)) for claim in some]
        for claim, look_up in zip(some, started, strict=True):
            yield claim, look_up.result()


def _ref(claim: ClaimInfo) -> ClaimRef:
    namespace, name = claim.name
    return ClaimRef(claim.uid, name, namespace)
