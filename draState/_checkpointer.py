"""Where claims are kept: a small contract, so that any technology can stand behind the cache.

FileCheckpointer keeps one file a claim, named by its UID, so a change costs the same whatever else is there.
MemoryCheckpointer keeps nothing beyond the process, for tests of agents.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, Unpack

from checkpointmanager import (
    BatchFailed,
    CheckpointError,
    CheckpointManager,
    CorruptCheckpoint,
    Event,
    FileOptions,
    Outcome,
    Store,
    UnstorableValue,
)

from ._claimschema import CLAIMS
from ._claimstate import ClaimInfoState


@dataclass(frozen=True, slots=True)
class UnknownClaim:
    """A claim whose file cannot be trusted: its UID, why, and what the generation before said."""

    uid: str
    why: str
    previous: ClaimInfoState | None = None


@dataclass(frozen=True, slots=True)
class ClaimInfoStateList:
    """Every claim that is kept. `from_this_boot` says by UID whether it was written since the last reboot."""

    claims: tuple[ClaimInfoState, ...] = ()
    unknown: tuple[UnknownClaim, ...] = ()
    from_this_boot: Mapping[str, bool | None] = field(default_factory=dict)

    def __iter__(self) -> Iterator[ClaimInfoState]:
        return iter(self.claims)

    def __len__(self) -> int:
        return len(self.claims)


class Checkpointer(Protocol):
    """What the cache needs. Failures are CheckpointErrors: a CheckpointWriteFailed says whether it is in doubt,
    a BatchFailed which of many claims failed."""

    def get_or_create(self) -> ClaimInfoStateList:
        """Everything that is kept; empty if this is new."""
        ...

    def store(self, claims: ClaimInfoState | Iterable[ClaimInfoState]) -> None:
        """Add or replace one claim, or several at once; durable when it returns."""
        ...

    def store_list(self, claims: Iterable[ClaimInfoState]) -> None:
        """Make these all the claims there are: writes what changed and deletes what is gone."""
        ...

    def delete(self, *uids: str) -> None:
        """Forget claims for good; no error for one that is not there."""
        ...

    def close(self) -> None:
        """Give the place back."""
        ...


class FileCheckpointer:
    """One file a claim, in a directory of its own. Takes CheckpointManager's options, but never `sharing`:
    a cache above it could not trust its memory."""

    def __init__(
        self,
        directory: str | os.PathLike[str] | Store,
        *,
        on_event: Callable[[Event], object] | None = None,
        boot_id: str | None = None,
        **options: Unpack[FileOptions],
    ) -> None:
        self._place = directory.path if isinstance(directory, Store) else os.fspath(directory)
        shared_store = isinstance(directory, Store) and not directory.exclusive
        if options.get("sharing") or shared_store:
            raise ValueError(f"{self._place}: claims need a directory of their own; one opened for sharing is refused")
        self._manager = CheckpointManager(directory, CLAIMS, on_event=on_event, boot_id=boot_id, **options)
        self._loaded = False
        # What each file holds; None while that is not known, because a change of it runs or has failed.
        self._kept: dict[str, ClaimInfoState | UnknownClaim | None] = {}

    def get_or_create(self) -> ClaimInfoStateList:
        """Damage is repaired where that is exact; else the claim is among the unknown ones."""
        loaded = self._manager.load()
        checkpoints = dict(loaded.checkpoints)
        problems = dict(loaded.problems)
        for uid, problem in loaded.problems.items():
            if isinstance(problem, CorruptCheckpoint) and self._repaired(uid):
                checkpoints[uid] = self._manager.get_checkpoint(uid)
                del problems[uid]
        good = {uid: checkpoint.data for uid, checkpoint in checkpoints.items() if checkpoint.data.claim_uid == uid}
        strangers = checkpoints.keys() - good.keys()
        unknown = {uid: self._unknown(uid, str(problem)) for uid, problem in problems.items()}
        unknown |= {uid: self._unknown(uid, "the file holds the state of another claim") for uid in strangers}
        self._kept = {**good, **unknown}
        self._loaded = True
        boots = {uid: checkpoints[uid].from_this_boot for uid in good}
        return ClaimInfoStateList(tuple(good.values()), tuple(unknown.values()), boots)

    def store(self, claims: ClaimInfoState | Iterable[ClaimInfoState]) -> None:
        if isinstance(claims, ClaimInfoState):
            self._forget(claims.claim_uid)
            self._manager.create_checkpoint(claims.claim_uid, claims)
            self._kept[claims.claim_uid] = claims
        else:
            self._commit({claim.claim_uid: claim for claim in claims}, [])

    def store_list(self, claims: Iterable[ClaimInfoState]) -> None:
        """Claims that are unknown stay as they are unless listed: a list cannot say that they are gone."""
        if not self._loaded:
            self.get_or_create()
        kept = dict(self._kept)
        wanted = {claim.claim_uid: claim for claim in claims}
        changed = {uid: claim for uid, claim in wanted.items() if kept.get(uid) != claim}
        self._commit(changed, [uid for uid in kept if uid not in wanted and not isinstance(kept[uid], UnknownClaim)])

    def delete(self, *uids: str) -> None:
        self._commit({}, uids)

    def close(self) -> None:
        self._manager.close()

    def _commit(self, claims: Mapping[str, ClaimInfoState], gone: Sequence[str]) -> None:
        """One batch. A claim that cannot be written for what it holds costs none of the others."""
        self._forget(*claims, *gone)
        failures: dict[str, CheckpointError] = {}
        try:
            with self._manager.batch() as batch:
                for uid, claim in claims.items():
                    try:
                        batch.create_checkpoint(uid, claim)
                    except UnstorableValue as error:
                        failures[uid] = error
                for uid in gone:
                    batch.remove_checkpoint(uid)
        except BatchFailed as error:
            failures |= error.failures
        self._kept.update({uid: claim for uid, claim in claims.items() if uid not in failures})
        for uid in gone:
            if uid not in failures:
                self._kept.pop(uid, None)
        if failures:
            raise BatchFailed(self._place, failures)

    def _forget(self, *uids: str) -> None:
        """About to be changed. Until that has succeeded nobody knows what the files hold; unknown ones stay so."""
        for uid in uids:
            if not isinstance(self._kept.get(uid), UnknownClaim):
                self._kept[uid] = None

    def _repaired(self, uid: str) -> bool:
        try:
            return self._manager.recover_checkpoint(uid).outcome in (Outcome.REPAIRED, Outcome.INTACT)
        except CheckpointError:
            return False  # a full disk, say: it stays damaged until somebody can write

    def _unknown(self, uid: str, why: str) -> UnknownClaim:
        previous = self._manager.previous_checkpoint(uid)
        if previous and previous.data.claim_uid == uid:
            return UnknownClaim(uid, why, previous.data)
        return UnknownClaim(uid, why)


class MemoryCheckpointer:
    """Keeps claims as long as the object lives."""

    def __init__(self) -> None:
        self.claims: dict[str, ClaimInfoState] = {}

    def get_or_create(self) -> ClaimInfoStateList:
        return ClaimInfoStateList(tuple(self.claims.values()))

    def store(self, claims: ClaimInfoState | Iterable[ClaimInfoState]) -> None:
        many = [claims] if isinstance(claims, ClaimInfoState) else claims
        self.claims.update({claim.claim_uid: claim for claim in many})

    def store_list(self, claims: Iterable[ClaimInfoState]) -> None:
        self.claims = {claim.claim_uid: claim for claim in claims}

    def delete(self, *uids: str) -> None:
        for uid in uids:
            self.claims.pop(uid, None)

    def close(self) -> None:
        """Nothing to give back."""
