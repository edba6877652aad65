"""Prepares and unprepares claims on the driver's side: decides, records, and only then answers.

    prepare      read the current allocation; check that no other claim holds the devices; choose; write `preparing`
                 (from now on the claim holds the devices and what was chosen); set up; write `prepared` with the
                 result; answer
    unprepare    write `unpreparing`; tear down; delete the claim (now its devices are free)

A kill between any two steps leaves a record of the last step. Only a claim that is `prepared` in this boot is ever
answered without setting it up again.
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Literal

from .._claims.cache import ClaimInfoCache
from .._claims.info import ClaimInfo
from .._claims.state import ClaimPhase
from .._draplugin import ClaimRef, PrepareResult, not_a
from .._errors import ClaimInUse, ClaimInvalid, DRAError
from .claim import DriverClaim
from .events import ClaimEvent, ClaimEventKind
from .hooks import DriverHooks
from .lookups import Found, NotAnswered, Unreached
from .records import DriverSide
from .review import Review

LOOK_UP_SECONDS = 2.0  # kubelet gives a prepare 45 s
GIVEN_UP = "the caller's deadline passed before the prepare began; nothing was done"


class ClaimPreparer:
    """A DRAPlugin made of hooks. Safe for many threads; calls for one claim run one after the other.

    `unfinished` decides what happens to a claim whose set-up failed or was interrupted by a crash. "keep": it holds
    its devices, and set_up is called again when kubelet asks again. "tear_down": its devices are freed at once.
    """

    def __init__(
        self,
        cache: ClaimInfoCache,
        hooks: DriverHooks,
        *,
        unfinished: Literal["keep", "tear_down"] = "keep",
        look_up_seconds: float = LOOK_UP_SECONDS,
        on_event: Callable[[ClaimEvent], object] | None = None,
    ) -> None:
        self.cache = cache  # what is remembered
        self.hooks = hooks
        self._side = side = DriverSide(cache, hooks, look_up_seconds, on_event)
        self.look_ups = side.look_ups  # the threads that ask the API server
        self.review = Review(side)  # compares what is held with the API server
        self.answered_from_memory = 0  # the number of such answers; approximate, for people
        self._tear_down_unfinished = unfinished == "tear_down"
        self._records = side.records
        self._choosing = threading.Lock()
        self._operations = side.operations
        self._ready = side.ready

    def restore(self) -> None:
        """Call this once, before the first answer. A claim that fails here does not affect the others."""
        for uid in [claim.uid for claim in self.cache]:
            with self._operations.locked(uid), self._side.reported(uid, "restore"):
                if claim := self._records.get(uid):
                    self._restore(claim)
        self.review.restore_lost()

    def prepare(self, claims: Sequence[ClaimRef], *, deadline: float | None = None) -> dict[str, PrepareResult]:
        """Returns the devices, or the error, by claim UID. `deadline` is the caller's own, in time.monotonic()."""
        with self._operations.locked(*{ref.uid for ref in claims}):
            started = [(ref, self.look_ups.start(ref)) for ref in claims]
            return {ref.uid: self._prepare(ref, look_up.result(), deadline) for ref, look_up in started}

    def unprepare(self, claims: Sequence[ClaimRef]) -> dict[str, str]:
        """Returns the error by claim UID, "" for success. A UID that is not in the cache succeeds."""
        return {ref.uid: self._unprepare(ref.uid) for ref in claims}

    def release(self, uid: str, *, force: bool = False) -> str:
        """Unprepare a claim that kubelet will not unprepare. Returns the error, "" for success.

        Without `force` it is refused unless the API server confirms that the claim is an orphan, and the driver that
        nobody uses it any more.
        """
        failures: list[str] = []
        with self._operations.locked(uid), self._side.reported(uid, "release", failures):
            claim = self._records.get(uid)
            if claim is None:
                raise DRAError(f"claim {uid} is not known here: no device is held for it")
            why = "by force" if force else self.review.why_orphan(claim)
            if not why:
                raise ClaimInUse(f"{claim.ref} still has its devices in the API server")
            if not force:
                self._refuse_if_used(self._records.view(claim))
            self._unprepare_known(uid)
            self._side.emit(ClaimEventKind.RELEASED, uid, why, claim)
        return failures[0] if failures else ""

    def close(self) -> None:
        """Stop asking the API server. The cache stays open: close it yourself."""
        self.look_ups.close()

    def prepare_found(self, ref: ClaimRef, found: Found, deadline: float | None = None) -> PrepareResult:
        """The second half of a prepare: the caller has looked up the claim and lets no other call for it run."""
        with self._operations.locked(ref.uid):
            return self._prepare(ref, found, deadline)

    def _prepare(self, ref: ClaimRef, found: Found, deadline: float | None) -> PrepareResult:
        failures: list[str] = []
        with self._side.reported(ref.uid, "prepare", failures):
            _check_uid(ref.uid)
            if deadline is not None and time.monotonic() >= deadline:
                raise DRAError(GIVEN_UP)
            return self._prepare_found(ref, found)
        return PrepareResult(error=failures[0])

    def _prepare_found(self, ref: ClaimRef, found: Found) -> PrepareResult:
        known = self._records.get(ref.uid)
        if isinstance(found, Unreached) and known and ref.uid in self._ready:
            return self._from_memory(known, found.why)
        if isinstance(found, NotAnswered):
            raise DRAError(f"{ref}: its allocation cannot be read: {found.why}")
        if isinstance(found, ClaimInvalid):
            raise found
        if not isinstance(found, DriverClaim):
            raise DRAError(not_a(DriverClaim, found))
        old = self._records.view(known) if known else None
        self.review.confirmed(ref.uid)
        if old and ref.uid in self._ready and old.same_allocation(found):
            return self._side.follow(old, found)
        self.hooks.check(found.copy())
        if known and old and self._must_go_first(known, old, found):
            self._unprepare_known(ref.uid)  # all of it: two claims may have swapped their devices
            known = None
        return self._set_up(self._intended(known, found))

    def _intended(self, known: ClaimInfo | None, found: DriverClaim) -> DriverClaim:
        """Make the intent durable, with what was chosen for this allocation before or is chosen now."""
        chosen = self._records.view(known).driver_data if known else None
        if known and (chosen is not None or self._records.phase(known)):
            found = replace(found, driver_data=chosen)
        elif self.hooks.chooses:
            with self._choosing:  # until it is durable, so that the next choice sees it
                held = {claim.uid: self._records.held(claim) for claim in self._records if claim.uid != found.uid}
                found = replace(found, driver_data=self.hooks.choose(found.copy(), held))
                self._records.hold(found)
                return found
        self._records.hold(found)
        return found

    def _refuse_if_used(self, claim: DriverClaim) -> None:
        try:
            users = self.hooks.users(claim.copy())
        except DRAError as error:
            why = f"{claim.ref} may be in use: {error}; release it with force if you know better"
            raise ClaimInUse(why) from error
        if users:
            raise ClaimInUse(f"{claim.ref} is still used by {', '.join(users)}; end them, or release it with force")

    def _must_go_first(self, known: ClaimInfo, old: DriverClaim, found: DriverClaim) -> bool:
        """True if something other than the current allocation may be set up for this claim."""
        phase = self._records.phase(known)
        if phase is ClaimPhase.UNPREPARING:
            return True
        same = old.same_devices(found) if phase is None else old.same_allocation(found)
        if same or not old.devices:
            return False
        self._side.emit(
            ClaimEventKind.ALLOCATION_CHANGED, known.uid, "devices or configs have changed; tearing down the old ones"
        )
        return True

    def _from_memory(self, known: ClaimInfo, why: str) -> PrepareResult:
        """The API server cannot be reached: a claim that is set up in this boot is answered, and confirmed later."""
        served = self._records.view(replace(known, state=known.served))
        self.hooks.refresh(served.copy())
        self.answered_from_memory += 1
        self.review.served(known.uid)
        self._side.emit(ClaimEventKind.ANSWERED_FROM_MEMORY, known.uid, why)
        return PrepareResult(served.devices)

    def _set_up(self, claim: DriverClaim) -> PrepareResult:
        try:
            done = self.hooks.set_up(claim.copy())
            if not isinstance(done, DriverClaim):
                raise DRAError(not_a(DriverClaim, done))
            if done.uid != claim.uid or not done.same_devices(claim):
                raise DRAError("the driver set up devices other than those allocated to the claim")
            ready = replace(claim, devices=done.devices, driver_data=done.driver_data)
            self._records.write(ready, ClaimPhase.PREPARED)
            self._ready.add(claim.uid)
        except Exception:
            if self._tear_down_unfinished:
                with self._side.reported(claim.uid, "tear down"):
                    self._unprepare_known(claim.uid)
            raise
        return PrepareResult(done.devices)

    def _restore(self, claim: ClaimInfo) -> None:
        phase = self._records.phase(claim)
        if claim.guessed:
            self._side.emit(ClaimEventKind.UNKNOWN, claim.uid, f"its devices stay held: {claim.unknown}")
            self.review.restore(claim)
        elif phase is ClaimPhase.PREPARED:
            if claim.from_this_boot:
                self.hooks.refresh(self._records.view(claim).copy())
                self._ready.add(claim.uid)
                phases = {did.phase for did in claim.state.driver_states.values()}
                self.cache.mark(claim.uid, prepared=phases == {ClaimPhase.PREPARED})
        elif phase:
            self._side.emit(ClaimEventKind.UNFINISHED, claim.uid, f"the last process ended while it was {phase}")
            if phase is ClaimPhase.UNPREPARING or self._tear_down_unfinished:
                self._unprepare_known(claim.uid)

    def _unprepare(self, uid: str) -> str:
        failures: list[str] = []
        with self._operations.locked(uid), self._side.reported(uid, "unprepare", failures):
            _check_uid(uid)
            self._unprepare_known(uid)
        return failures[0] if failures else ""

    def _unprepare_known(self, uid: str) -> None:
        if known := self._records.get(uid):
            claim = self._records.view(known)
            self._ready.discard(uid)
            self.review.confirmed(uid)
            self._records.write(claim, ClaimPhase.UNPREPARING)
            self.hooks.tear_down(claim.copy())
            self._records.remove(uid)


_UID = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,198}[A-Za-z0-9])?")


def _check_uid(uid: str) -> None:
    """Raise ClaimInvalid for a text that no API server gives as a UID: drivers use UIDs in the names of CDI files."""
    if not _UID.fullmatch(uid):
        raise ClaimInvalid("the UID of the claim is invalid: use letters, digits, '-', '_' and '.' only")
