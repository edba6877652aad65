"""Every claim of this node in memory, and on disk before it is there.

Reads take no lock and never wait: a record is immutable and is swapped in one step. Writers of different
claims do not wait for each other. The disk comes first: what a reader sees has been durable before.
"""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from checkpointmanager import BatchFailed, CheckpointError, KeyLocks
from checkpointmanager._gcpause import gc_paused

from ._checkpointer import Checkpointer, UnknownClaim
from ._claiminfo import ClaimInfo
from ._claimstate import ClaimInfoState
from ._errors import ClaimConflict

Name = tuple[str, str]
DeviceId = tuple[str, str, str]  # driver, pool, device
UIDs = tuple[str, ...]  # of claims, in no order: a set would take four times the memory
K = TypeVar("K")
Change = Callable[[Mapping[str, ClaimInfo]], Iterable[ClaimInfo]]


@dataclass(frozen=True, slots=True)
class CacheReport:
    """What an agent exports about its cache: numbers, and every claim that cannot be trusted."""

    claims: int
    earlier_boot: tuple[str, ...]
    unknown: Mapping[str, str]  # claim UID -> why

    @property
    def degraded(self) -> bool:
        return bool(self.unknown)


class ClaimInfoCache:
    """Rebuilt from its checkpointer when it is made. A claim whose file is damaged is present as unknown."""

    def __init__(self, checkpointer: Checkpointer) -> None:
        self._checkpointer = checkpointer
        self._locks = KeyLocks()  # of claims, by UID and by name: held while one is written
        self._indexing = threading.Lock()  # guards the changes of the four dicts; readers do without
        with gc_paused():
            kept = checkpointer.get_or_create()
            boots = kept.from_this_boot
            claims = [ClaimInfo(state, from_this_boot=boots.get(state.claim_uid, True)) for state in kept]
            claims += map(_unknown_claim, kept.unknown)
            self._claims = {claim.uid: claim for claim in claims}
            self._uids = _indexed(claims, _names)  # one, unless files of two claims say the same name
            self._pods = _indexed(claims, _pods)
            self._holders = _indexed(claims, _devices)

    def get(self, uid: str) -> ClaimInfo | None:
        return self._claims.get(uid)

    def by_name(self, namespace: str, name: str) -> ClaimInfo | None:
        """The claim that people call so; one that can be trusted before one that cannot."""
        claims = (self._claims.get(uid) for uid in self._uids.get((namespace, name), ()))
        of_this_name = [claim for claim in claims if claim and claim.name == (namespace, name)]
        return min(of_this_name, key=lambda claim: (claim.unknown, claim.uid), default=None)

    def of_pod(self, pod_uid: str) -> tuple[ClaimInfo, ...]:
        """The claims that this pod refers to."""
        claims = (self._claims.get(uid) for uid in self._pods.get(pod_uid, ()))
        return tuple(claim for claim in claims if claim and pod_uid in claim.state.pod_uids)

    def pods(self) -> frozenset[str]:
        """Every pod that some claim refers to."""
        return frozenset(self._pods.copy())

    def __contains__(self, uid: str) -> bool:
        return uid in self._claims

    def __len__(self) -> int:
        return len(self._claims)

    def __iter__(self) -> Iterator[ClaimInfo]:
        return iter(list(self._claims.values()))

    def holders(self, driver: str, pool: str, device: str) -> frozenset[str]:
        """The claims that hold a device; also unknown ones, as far as their last whole generation tells."""
        return frozenset(self._holders.get((driver, pool, device), ()))

    def report(self) -> CacheReport:
        claims = list(self)
        return CacheReport(
            claims=len(claims),
            earlier_boot=tuple(sorted(claim.uid for claim in claims if claim.from_this_boot is False)),
            unknown={claim.uid: claim.unknown for claim in claims if claim.unknown},
        )

    def change(self, uids: Iterable[str], change: Change, *, names: Iterable[Name] = ()) -> None:
        """Read, change and write several claims, one batch on disk; nobody else changes them meanwhile.

        `change` gets those of the claims that exist and returns the records that are new or different. What
        it raises goes to the caller and nothing is changed. On a failed write exactly what is durable is in
        memory, what is in doubt is there as unknown, and the error says what failed.
        """
        wanted = list(uids)
        with self._locks.locked(*wanted, *("/".join(name) for name in names)):
            before = {uid: claim for uid in wanted if (claim := self._claims.get(uid))}
            after = [claim for claim in change(before) if claim != before.get(claim.uid)]
            self._refuse_conflicts(after, before)
            self._write(after, before)

    def put(self, *claims: ClaimInfo) -> None:
        """Add or replace these."""
        self.change([claim.uid for claim in claims], lambda _: claims, names=[claim.name for claim in claims])

    def mark(self, uid: str, **flags: Any) -> None:
        """Set `prepared`, `unpreparing` or `annotations`: memory only."""
        with self._locks.locked(uid):
            if claim := self._claims.get(uid):
                self._swap(replace(claim, **flags))

    def delete(self, *uids: str) -> None:
        """From disk, then from memory. What the disk refuses stays, unpreparing, for the next try."""
        if not uids:
            return
        with self._locks.locked(*uids):
            failures: Mapping[str, CheckpointError] = {}
            try:
                self._checkpointer.delete(*uids)
            except BatchFailed as error:
                failures = error.failures
                raise
            except CheckpointError as error:
                failures = dict.fromkeys(uids, error)
                raise
            except BaseException:
                failures = dict.fromkeys(uids, _INTERRUPTED)
                raise
            finally:
                self._conclude_deletion(uids, failures)

    def close(self) -> None:
        self._checkpointer.close()

    def _write(self, after: list[ClaimInfo], before: Mapping[str, ClaimInfo]) -> None:
        written = [claim.state for claim in after if _must_be_written(claim, before.get(claim.uid))]
        stamped = {state.claim_uid for state in written}
        after = [replace(claim, from_this_boot=True) if claim.uid in stamped else claim for claim in after]
        try:
            if written:
                self._checkpointer.store(written[0] if len(written) == 1 else written)
        except BatchFailed as error:
            self._conclude(after, before, error.failures)
            raise
        except CheckpointError as error:
            self._conclude(after, before, dict.fromkeys(stamped, error))
            raise
        except BaseException:  # interrupted, perhaps between the rename and the sync
            self._conclude(after, before, dict.fromkeys(stamped, _INTERRUPTED))
            raise
        self._conclude(after, before, {})

    def _conclude(
        self, after: Iterable[ClaimInfo], before: Mapping[str, ClaimInfo], failures: Mapping[str, CheckpointError]
    ) -> None:
        """Memory becomes what the disk certainly holds. What is in doubt holds the pods of both outcomes."""
        for claim in after:
            failure = failures.get(claim.uid)
            if failure is None:
                self._swap(claim)
            elif _in_doubt(failure):
                old = before.get(claim.uid, claim)
                pods = claim.state.pod_uids | old.state.pod_uids
                state = replace(claim.state, pod_uids=pods)
                self._swap(replace(claim, state=state, prepared=False, unknown=str(failure), in_doubt=True))

    def _conclude_deletion(self, uids: Iterable[str], failures: Mapping[str, CheckpointError]) -> None:
        for uid in uids:
            claim = self._claims.get(uid)
            failure = failures.get(uid)
            if claim and failure:
                kept = replace(claim, unpreparing=True, prepared=False)
                if _in_doubt(failure):
                    kept = replace(kept, unknown=str(failure), in_doubt=not claim.guessed)
                self._swap(kept)
            elif claim:
                self._drop(claim)

    def _refuse_conflicts(self, after: Iterable[ClaimInfo], before: Mapping[str, ClaimInfo]) -> None:
        """Two claims with one name: the old one was force-deleted and is not unprepared yet."""
        taken: dict[Name, str] = {}
        for claim in after:
            old = before.get(claim.uid)
            if old and old.name == claim.name:
                continue  # it has had the name before, and must be able to go whoever else has it
            others = {*self._uids.get(claim.name, ()), taken.setdefault(claim.name, claim.uid)} - {claim.uid}
            if others:
                raise ClaimConflict(claim.name, claim.uid, min(others))

    def _swap(self, claim: ClaimInfo) -> None:
        with self._indexing:
            old = self._claims.get(claim.uid)
            self._claims[claim.uid] = claim
            _reindex(self._uids, claim.uid, _names(old), _names(claim))
            _reindex(self._pods, claim.uid, _pods(old), _pods(claim))
            _reindex(self._holders, claim.uid, _devices(old), _devices(claim))

    def _drop(self, claim: ClaimInfo) -> None:
        with self._indexing:
            _reindex(self._uids, claim.uid, _names(claim), ())
            _reindex(self._pods, claim.uid, _pods(claim), ())
            _reindex(self._holders, claim.uid, _devices(claim), ())
            del self._claims[claim.uid]


def _reindex(index: dict[K, UIDs], uid: str, old: Iterable[K], new: Iterable[K]) -> None:
    """Move a claim from its old places in an index to its new ones; each entry is swapped in one step."""
    for place in set(new).difference(old):
        index[place] = (*index.get(place, ()), uid)
    for place in set(old).difference(new):
        if rest := tuple(other for other in index[place] if other != uid):
            index[place] = rest
        else:
            del index[place]


def _indexed(claims: Iterable[ClaimInfo], places: Callable[[ClaimInfo], Iterable[K]]) -> dict[K, UIDs]:
    index: defaultdict[K, list[str]] = defaultdict(list)
    for claim in claims:
        for place in places(claim):
            index[place].append(claim.uid)
    return {place: tuple(uids) for place, uids in index.items()}


def _names(claim: ClaimInfo | None) -> set[Name]:
    return {claim.name} if claim and any(claim.name) else set()


def _pods(claim: ClaimInfo | None) -> frozenset[str]:
    return claim.state.pod_uids if claim else frozenset()


def _devices(claim: ClaimInfo | None) -> set[DeviceId]:
    return claim.state.devices() if claim else set()


class _Interrupted(CheckpointError):
    in_doubt = True


_INTERRUPTED = _Interrupted("the write was interrupted: it is not known whether it is durable")


def _must_be_written(claim: ClaimInfo, before: ClaimInfo | None) -> bool:
    """Flags stay in memory, and so does what is only guessed. A record of this boot is stamped anew."""
    if claim.unknown:
        return False
    if before is None or before.unknown:
        return True
    return claim.state != before.state or claim.from_this_boot != before.from_this_boot


def _in_doubt(error: CheckpointError) -> bool:
    return bool(getattr(error, "in_doubt", False))


def _unknown_claim(unknown: UnknownClaim) -> ClaimInfo:
    state = unknown.previous or ClaimInfoState(unknown.uid, "", "")
    return ClaimInfo(state, from_this_boot=None, unknown=unknown.why)
