"""Compares what a driver holds with the API server: orphans, answers from memory, damaged and lost claims, pods.

Kubelet calls once per claim. Whatever changes afterwards, nobody reports to the driver: it has to look.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import islice

from .._claims.info import ClaimInfo
from .._claims.state import ClaimInfoState, ClaimPhase, Device, DriverState
from .._errors import ClaimGone, DRAError, in_one_line
from .claim import DriverClaim
from .events import ClaimEventKind
from .lookups import THREADS, Found, NotAnswered
from .records import DriverSide

LOST = "it has no record, but this node shows that it was set up: the state directory was lost, emptied or not mounted"


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


class Review:
    """What the last reviews found, each as a dict from claim UID to the reason, for people."""

    def __init__(self, side: DriverSide) -> None:
        self.incomplete = False  # True if the last look got no answer for some claims: look again soon
        self._side = side
        self._records = side.records
        self._orphans: dict[str, Orphan] = {}
        self._unconfirmed: set[str] = set()  # answered from memory and not looked up since
        self._outdated: dict[str, str] = {}
        self._unhealed: dict[str, str] = {}
        self._lost: set[str] = set()
        self._assumed: set[str] = set()  # unknown claims whose devices only the API server has named
        self._looking = threading.Lock()  # one look at a time, or an orphan could be reported as new twice

    @property
    def orphans(self) -> Mapping[str, Orphan]:
        """Claims that kubelet will not unprepare, without those released since the last look."""
        return {uid: orphan for uid, orphan in self._orphans.copy().items() if self._records.get(uid)}

    @property
    def outdated(self) -> Mapping[str, str]:
        """Claims answered from memory whose allocation was another one; until they are prepared or unprepared."""
        return self._outdated.copy()

    @property
    def unhealed(self) -> Mapping[str, str]:
        """Unknown claims that cannot be written anew."""
        return {uid: why for uid, why in self._unhealed.copy().items() if self._unknown(uid)}

    @property
    def lost(self) -> frozenset[str]:
        """Claims without a record that this node has traces of, until they are written anew or unprepared."""
        return frozenset(uid for uid in self._lost.copy() if self._unknown(uid))

    @property
    def unknown_devices(self) -> frozenset[str]:
        """Unknown claims of which not even the devices are known: another claim may get them."""
        return frozenset(claim.uid for claim in self._guessed() if not claim.held(self._records.driver).devices)

    def look(self) -> Mapping[str, Orphan]:
        """Look up every claim: name the orphans, heal what can be healed, follow the pods. Releases nothing."""
        self.incomplete = not self._look(self._records)
        return self.orphans

    def heal(self) -> None:
        """Look up the unknown claims only; costs nothing if there are none."""
        self._look(self._guessed())

    def confirm(self) -> None:
        """Look up what was answered from memory, or refused, since. Call this often: it costs nothing otherwise."""
        refused = self._side.look_ups.refused
        waiting = [claim.ref for uid in self._unconfirmed.copy() if (claim := self._records.get(uid))]
        for ref in [*waiting, *([refused] if refused else [])]:
            self._compare(ref.uid, self._side.look_ups.start(ref).result())

    def served(self, uid: str) -> None:
        """The claim was answered from memory."""
        self._unconfirmed.add(uid)

    def confirmed(self, uid: str) -> None:
        """An answer of the API server, or an unprepare, has replaced what was answered from memory."""
        self._unconfirmed.discard(uid)
        self._outdated.pop(uid, None)

    def why_orphan(self, claim: ClaimInfo) -> str:
        """Why a claim is an orphan now, or "" if it is not one. Raises DRAError if the API server gives no answer."""
        ((_, found),) = self._found([claim])
        if isinstance(found, NotAnswered):
            raise DRAError(f"{claim.ref}: it cannot be looked up: {found.why}")
        return self._why(claim, found)

    def restore(self, claim: ClaimInfo) -> None:
        """Hold the devices that an unknown claim probably has, in memory and never on disk."""
        part = claim.state.driver_states.get(self._records.driver) or self._side.hooks.trace(claim.uid)
        if part and part.devices:
            self._hold(claim, part)
        elif not claim.held(self._records.driver).devices:
            self._side.emit(ClaimEventKind.UNKNOWN_DEVICES, claim.uid, "another claim may get its devices")

    def restore_lost(self) -> None:
        """Hold the devices of claims that the node has traces of, and no record."""
        shown: list[str] = []
        with self._side.reported("", "look for traces"):
            shown += self._side.hooks.traces()
        for uid in shown:
            if uid not in self._records.cache:
                with self._side.operations.locked(uid), self._side.reported(uid, "restore"):
                    self._lost.add(uid)
                    self._side.emit(ClaimEventKind.RECORD_LOST, uid, LOST)
                    self.restore(ClaimInfo(ClaimInfoState(uid, "", ""), from_this_boot=None, unknown=LOST))

    def _look(self, claims: Iterable[ClaimInfo]) -> bool:
        """True if every look-up got an answer."""
        answered = True
        with self._looking:
            for claim, found in self._found(claims):
                if isinstance(found, NotAnswered):
                    self._not_healed(claim, found.why)
                    answered = False
                    continue  # the claim stays as it was
                if not (why := self._why(claim, found)):
                    self._orphans.pop(claim.uid, None)
                else:
                    self._orphaned(claim, why)
                if isinstance(found, DriverClaim):
                    self._follow(claim.uid, found)
                else:
                    self._not_healed(claim, str(found))
        return answered

    def _found(self, claims: Iterable[ClaimInfo]) -> Iterator[tuple[ClaimInfo, Found]]:
        """Look up several claims at a time."""
        waiting = iter(list(claims))
        while some := list(islice(waiting, THREADS)):
            started = [self._side.look_ups.start(claim.ref) for claim in some]
            for claim, look_up in zip(some, started, strict=True):
                yield claim, look_up.result()

    def _why(self, claim: ClaimInfo, found: Found) -> str:
        if isinstance(found, ClaimGone):
            return str(found)
        if isinstance(found, DriverClaim):
            held = {device.identity for device in self._records.view(claim).devices}
            if held and not held & {device.identity for device in found.devices}:
                return f"{claim.ref} has other devices now"
        return ""

    def _orphaned(self, claim: ClaimInfo, why: str) -> None:
        with suppress(DRAError):
            if users := self._side.hooks.users(self._records.view(claim).copy()):
                why += f"; still used by {', '.join(users)}"
        known = self.orphans.get(claim.uid)
        self._orphans[claim.uid] = replace(known, why=why) if known else Orphan(claim.uid, why)
        if not known:
            self._side.emit(ClaimEventKind.ORPHANED, claim.uid, why)

    def _follow(self, uid: str, found: DriverClaim) -> None:
        """Bring a claim up to date with its allocation, if that needs no new set-up."""
        with self._side.operations.locked(uid), self._side.reported(uid, "review"):
            known = self._records.get(uid)
            if known and known.guessed:
                self._heal(known, found)
            elif known and uid in self._side.ready:
                old = self._records.view(known)
                if old.same_allocation(found) and dict(old.pods) != dict(found.pods):
                    self._side.follow(old, found)

    def _heal(self, known: ClaimInfo, found: DriverClaim) -> None:
        part = known.state.driver_states.get(self._records.driver) if known.uid not in self._assumed else None
        try:
            shown = known.evidence.get(self._records.driver)
            claim, phase = healed(part, self._side.hooks.trace(known.uid), shown, found)
            self._records.hold(claim, phase)
        except Exception as error:  # noqa: BLE001  (a hook is foreign code)
            self._not_healed(known, in_one_line(error))
            if isinstance(error, NotHealed) and not (part and part.devices):
                self._assumed.add(known.uid)
                self._hold(known, DriverState(found.devices))
            return
        self._side.emit(ClaimEventKind.HEALED, known.uid, "its record is written anew; it was: " + known.unknown)

    def _not_healed(self, claim: ClaimInfo, why: str) -> None:
        if claim.guessed:
            self._unhealed[claim.uid] = why

    def _hold(self, claim: ClaimInfo, part: DriverState) -> None:
        parts = {**claim.state.driver_states, self._records.driver: part}
        state = replace(claim.state, driver_states=parts)
        self._records.cache.change([claim.uid], lambda _: [replace(claim, state=state)])

    def _compare(self, uid: str, found: Found) -> None:
        """Compare an answer from memory with the allocation."""
        with self._side.operations.locked(uid):
            known = self._records.get(uid)
            if isinstance(found, NotAnswered) or uid not in self._unconfirmed or not known:
                return
            self._unconfirmed.discard(uid)
            why = str(found) if isinstance(found, ClaimGone) else ""
            if isinstance(found, DriverClaim) and not self._records.view(known).same_allocation(found):
                why = "its devices or configs have changed"
            if why:
                self._outdated[uid] = f"answered from memory while the API server could not be reached, but {why}"
                self._side.emit(ClaimEventKind.OUTDATED, uid, self._outdated[uid])

    def _guessed(self) -> list[ClaimInfo]:
        return [claim for claim in self._records if claim.guessed]

    def _unknown(self, uid: str) -> bool:
        claim = self._records.get(uid)
        return claim is not None and claim.guessed


class NotHealed(DRAError):
    """The record stays unknown. The message says why."""


def healed(
    part: DriverState | None, trace: DriverState | None, shown: DriverState | None, found: DriverClaim
) -> tuple[DriverClaim, ClaimPhase | None]:
    """The claim and its phase to write. Raises NotHealed.

    `part` is what is left of the record, such as its previous generation, `trace` what the node shows, and `shown`
    what the damaged bytes still name. None proves that the set-up is complete, so the claim has no phase: it holds its
    devices, and is set up again before the next answer. Data in damaged bytes may be another claim's: it is not used.
    """
    evidence = [each for each in (trace, part, shown) if each and each.devices]
    if not evidence:
        raise NotHealed("nothing shows which devices it was set up with")
    for each in evidence:
        if _identities(each.devices) != _identities(found.devices):
            raise NotHealed("the API server gives it other devices than it was set up with")
    told = next((each for each in evidence if each is trace or _has_all(each, certain=each is part)), None)
    if told is None:
        raise NotHealed("what its set-up returned is not certain")
    ids = {device.identity: device.cdi_device_ids for device in told.devices}
    devices = tuple(replace(device, cdi_device_ids=ids[device.identity]) for device in found.devices)
    unpreparing = any(each and each.phase is ClaimPhase.UNPREPARING for each in (part, shown))
    phase = ClaimPhase.UNPREPARING if unpreparing else None
    return replace(found, devices=devices, driver_data=told.driver_data), phase


def _has_all(record: DriverState, *, certain: bool) -> bool:
    """True if set_up had returned; what it returned counts only in a record that is whole."""
    done = record.phase in (ClaimPhase.PREPARED, ClaimPhase.UNPREPARING)
    return done and (certain or record.driver_data is None)


def _identities(devices: Iterable[Device]) -> set[tuple[str, str, str | None]]:
    return {device.identity for device in devices}
