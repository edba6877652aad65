"""Every claim of this node in memory, written to disk first.

A CheckpointCache plus what claims need: flags that never reach the disk, and lookups by name, pod and device.
Reads take no lock and never wait: a record is immutable and is swapped in one step.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, Literal, TypeVar, Unpack

from checkpointmanager import (
    REMOVED,
    CacheEntry,
    CheckpointCache,
    CheckpointManager,
    Event,
    FileOptions,
    KeyLocks,
    Removal,
    Store,
    gc_paused,
)

from .._errors import ClaimConflict
from .info import ClaimInfo, evidence_in
from .state import CLAIMS, ClaimInfoState

Name = tuple[str, str]
DeviceId = tuple[str, str]  # driver and device, without the pool: pools get renamed
UIDs = tuple[str, ...]  # of claims, in no order: a set would take four times the memory
K = TypeVar("K")
Change = Callable[[Mapping[str, ClaimInfo]], Iterable[ClaimInfo]]


@dataclass(frozen=True, slots=True)
class CacheReport:
    """The state of a cache for status pages: counts, and every claim that cannot be trusted."""

    claims: int  # how many
    earlier_boot: tuple[str, ...]  # the UIDs of claims written before the last reboot
    unknown: Mapping[str, str]  # claim UID -> why

    @property
    def degraded(self) -> bool:
        """True if any claim cannot be trusted."""
        return bool(self.unknown)


class ClaimInfoCache:
    """Loads its directory when it is created. A claim whose file is damaged is present as unknown.

    Takes a directory or a Store, and the options of CheckpointManager. It keeps one file per claim, named by the
    UID, so the cost of a change does not depend on the number of claims.
    """

    def __init__(
        self,
        directory: str | os.PathLike[str] | Store,
        *,
        on_event: Callable[[Event], object] | None = None,
        boot_id: str | None = None,
        **options: Unpack[FileOptions],
    ) -> None:
        self._manager = CheckpointManager(directory, CLAIMS, on_event=on_event, boot_id=boot_id, **options)
        self._names = KeyLocks()  # by "namespace/name": held while a claim gets that name
        self._indexing = threading.Lock()  # guards changes of the next four; readers do not need it
        self._claims: dict[str, ClaimInfo] = {}
        self._uids: dict[Name, UIDs] = {}  # one UID per name, unless two files have the same name
        self._pods: dict[str, UIDs] = {}
        self._holders: dict[DeviceId, UIDs] = {}
        self._thread = _Thread()
        with gc_paused():
            self._cache = CheckpointCache(self._manager, on_swap=self._swapped)
            try:
                for entry in self._cache.entries():
                    self._swap(entry.key, self._loaded(entry))
            except BaseException:
                self.close()
                raise

    def get(self, uid: str) -> ClaimInfo | None:
        """The claim with this UID, even if it is unknown; None if there is none."""
        return self._claims.get(uid)

    def by_name(self, namespace: str, name: str) -> ClaimInfo | None:
        """The claim with this name. If there are several, one that can be trusted comes first."""
        claims = (self._claims.get(uid) for uid in self._uids.get((namespace, name), ()))
        of_this_name = [claim for claim in claims if claim and claim.name == (namespace, name)]
        return min(of_this_name, key=lambda claim: (claim.unknown, claim.uid), default=None)

    def of_pod(self, pod_uid: str) -> tuple[ClaimInfo, ...]:
        """The claims that this pod refers to."""
        claims = (self._claims.get(uid) for uid in self._pods.get(pod_uid, ()))
        return tuple(claim for claim in claims if claim and pod_uid in claim.state.pod_uids)

    def pods(self) -> frozenset[str]:
        """The UIDs of all pods that a claim refers to."""
        return frozenset(self._pods.copy())

    def __contains__(self, uid: str) -> bool:
        return uid in self._claims

    def __len__(self) -> int:
        return len(self._claims)

    def __iter__(self) -> Iterator[ClaimInfo]:
        return iter(list(self._claims.values()))

    def holders(self, driver: str, pool: str | None, device: str) -> frozenset[str]:
        """The UIDs of the claims that hold a device, including unknown claims of which anything names it.

        None as the pool matches every pool: pools get renamed.
        """
        uids = self._holders.get((driver, device), ())
        if pool is None:
            return frozenset(uids)
        claims = (self._claims.get(uid) for uid in uids)
        return frozenset(claim.uid for claim in claims if claim and (driver, pool, device) in claim.devices())

    def report(self) -> CacheReport:
        """Counts, and the claims that cannot be trusted, for an agent's status page."""
        claims = list(self)
        return CacheReport(
            claims=len(claims),
            earlier_boot=tuple(sorted(claim.uid for claim in claims if claim.from_this_boot is False)),
            unknown={claim.uid: claim.unknown for claim in claims if claim.unknown},
        )

    def change(
        self, uids: Iterable[str], change: Change, *, names: Iterable[Name] = (), independent: bool = False
    ) -> None:
        """Read, change and write several claims, all or none on disk; no other thread changes them meanwhile.

        `change` gets the claims that exist and returns the records that are new or different. If it raises,
        nothing changes and the exception reaches the caller. After a failed write, memory has exactly what is
        durable, a claim in doubt is unknown, and the error says what failed. Raises ClaimConflict if one of `names`
        belongs to another claim. With independent=True, each claim succeeds or fails on its own.
        """
        wanted, named = list(uids), set(names)
        with self._names.locked(*("/".join(name) for name in named)):
            try:
                self._cache.change(wanted, lambda _: self._planned(wanted, change, named), independent=independent)
            finally:
                self._thread.writes = {}

    def put(self, *claims: ClaimInfo) -> None:
        """Add or replace these claims."""
        self.change([claim.uid for claim in claims], lambda _: claims, names=[claim.name for claim in claims])

    def mark(self, uid: str, **flags: Any) -> None:
        """Set `prepared`, `unpreparing` or `annotations`, in memory only."""
        self.change([uid], lambda known: [replace(claim, **flags) for claim in known.values()])

    def delete(self, *uids: str) -> None:
        """Delete claims from disk, then from memory. If the disk refuses, the claim stays, marked as unpreparing."""
        self._cache.change(uids, lambda _: self._going(uids), independent=True)

    def delete_part(self, uid: str, driver: str) -> None:
        """Delete what one driver recorded for a claim; the claim is deleted, as by `delete`, with the last driver."""

        def rest(known: Mapping[str, ClaimInfo]) -> Iterable[ClaimInfo]:
            for claim in known.values():
                parts = {name: did for name, did in claim.state.driver_states.items() if name != driver}
                state = replace(claim.state, driver_states=parts)
                yield replace(claim, state=state, unpreparing=False)

        def planned(_: object) -> Mapping[str, ClaimInfoState | Literal[Removal.REMOVED]]:
            claim = self._claims.get(uid)
            return self._planned([uid], rest, set()) if claim and _shared(claim, driver) else self._going([uid])

        try:
            self._cache.change([uid], planned)
        finally:
            self._thread.writes = {}

    def close(self) -> None:
        """Wait for running changes, then release the directory. Reads still work. May be called twice."""
        self._cache.close()

    def _loaded(self, entry: CacheEntry[ClaimInfoState]) -> ClaimInfo:
        uid = entry.key
        if entry.value and entry.value.claim_uid == uid:
            return ClaimInfo(entry.value, from_this_boot=entry.from_this_boot)
        previous, why = entry.previous, str(entry.problem)
        if entry.value:
            why = "the file holds the state of another claim"
            before = self._manager.previous_checkpoint(uid)
            previous = before.data if before else None
        state = previous if previous and previous.claim_uid == uid else ClaimInfoState(uid, "", "")
        return ClaimInfo(state, from_this_boot=None, unknown=why, evidence=evidence_in(entry.problem, uid))

    def _planned(self, wanted: Iterable[str], change: Change, names: set[Name]) -> dict[str, ClaimInfoState]:
        """The states to write, while this thread holds the claims. Changes of memory alone are made here."""
        before = {uid: claim for uid in wanted if (claim := self._claims.get(uid))}
        after = [claim for claim in change(before) if claim != before.get(claim.uid)]
        self._refuse_conflicts([claim for claim in after if claim.name in names], before)
        writes = {}
        for claim in after:
            if _must_be_written(claim, before.get(claim.uid)):
                writes[claim.uid] = replace(claim, from_this_boot=True)
            else:
                self._swap(claim.uid, claim)
        self._thread.writes = writes
        return {uid: claim.state for uid, claim in writes.items()}

    def _going(self, uids: Iterable[str]) -> dict[str, Literal[Removal.REMOVED]]:
        for uid in uids:
            if claim := self._claims.get(uid):
                self._swap(uid, replace(claim, unpreparing=True, prepared=False))
        return dict.fromkeys(uids, REMOVED)

    def _swapped(
        self, uid: str, _: CacheEntry[ClaimInfoState] | None, entry: CacheEntry[ClaimInfoState] | None
    ) -> None:
        """Follow the cache, which has replaced the entry of a claim after a write."""
        claim = self._claims.get(uid)
        if entry is None:
            self._swap(uid, None)
        elif entry.in_doubt is None:
            self._swap(uid, self._thread.writes[uid])
        elif intended := self._thread.writes.get(uid):
            self._swap(uid, intended.doubted(claim, str(entry.in_doubt.error)))
        elif claim:  # a removal in doubt
            self._swap(uid, replace(claim, unknown=str(entry.in_doubt.error), in_doubt=not claim.guessed))

    def _refuse_conflicts(self, after: Iterable[ClaimInfo], before: Mapping[str, ClaimInfo]) -> None:
        """Two claims have one name if the old one was force-deleted and is still prepared here."""
        taken: dict[Name, str] = {}
        for claim in after:
            old = before.get(claim.uid)
            if not any(claim.name):
                continue  # its name is not known
            if old and old.name == claim.name:
                continue  # it had the name before, and must be removable even if another claim has it too
            others = {*self._uids.get(claim.name, ()), taken.setdefault(claim.name, claim.uid)} - {claim.uid}
            if others:
                raise ClaimConflict(claim.name, claim.uid, min(others))

    def _swap(self, uid: str, new: ClaimInfo | None) -> None:
        with self._indexing:
            old = self._claims.pop(uid, None) if new is None else self._claims.get(uid)
            if new:
                self._claims[uid] = new
            _reindex(self._uids, uid, _names(old), _names(new))
            _reindex(self._pods, uid, _pods(old), _pods(new))
            _reindex(self._holders, uid, _devices(old), _devices(new))


def _shared(claim: ClaimInfo, driver: str) -> bool:
    return any(name != driver for name in claim.state.driver_states)


def _reindex(index: dict[K, UIDs], uid: str, old: Iterable[K], new: Iterable[K]) -> None:
    """Move a claim from its old keys in an index to its new ones; each entry is swapped in one step."""
    for place in set(new).difference(old):
        index[place] = (*index.get(place, ()), uid)
    for place in set(old).difference(new):
        if rest := tuple(other for other in index[place] if other != uid):
            index[place] = rest
        else:
            del index[place]


def _names(claim: ClaimInfo | None) -> set[Name]:
    return {claim.name} if claim and any(claim.name) else set()


def _pods(claim: ClaimInfo | None) -> frozenset[str]:
    return claim.state.pod_uids if claim else frozenset()


def _devices(claim: ClaimInfo | None) -> set[DeviceId]:
    return {(driver, device) for driver, _, device in claim.devices()} if claim else set()


class _Thread(threading.local):
    """The records that this thread is writing: they go into memory once their states are on disk."""

    writes: Mapping[str, ClaimInfo] = MappingProxyType({})


def _must_be_written(claim: ClaimInfo, before: ClaimInfo | None) -> bool:
    """Flags and guesses stay in memory. A record from an earlier boot is written again with this boot's id."""
    if claim.unknown:
        return False
    if before is None or before.unknown:
        return True
    return claim.state != before.state or claim.from_this_boot != before.from_this_boot
