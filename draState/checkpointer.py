"""Where claims are kept: a small contract, so that any technology can stand behind the cache.

FileCheckpointer keeps one file a claim, named by its UID, so a change costs the same whatever else is there.
MemoryCheckpointer keeps nothing beyond the process, for tests of agents.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Protocol, Unpack

from checkpointmanager import (
    BatchFailed,
    CheckpointError,
    CheckpointManager,
    CorruptCheckpoint,
    Event,
    Outcome,
    Store,
)
from checkpointmanager.manager import FileOptions

from .schema import CLAIMS
from .state import ClaimInfoState


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
        if options.get("sharing"):
            raise ValueError(f"{directory}: claims need a directory of their own; sharing=True is refused")
        self._manager = CheckpointManager(directory, CLAIMS, on_event=on_event, boot_id=boot_id, **options)
        self._kept: dict[str, ClaimInfoState] = {}  # what the files are known to hold

    def get_or_create(self) -> ClaimInfoStateList:
        """Damage is repaired where that is exact; else the claim is among the unknown ones."""
        loaded = self._manager.load()
        checkpoints = dict(loaded.checkpoints)
        problems = dict(loaded.problems)
        for uid, problem in loaded.problems.items():
            if isinstance(problem, CorruptCheckpoint) and self._repaired(uid):
                checkpoints[uid] = self._manager.get_checkpoint(uid)
                del problems[uid]
        strangers = [uid for uid, checkpoint in checkpoints.items() if checkpoint.data.claim_uid != uid]
        self._kept = {uid: checkpoint.data for uid, checkpoint in checkpoints.items() if uid not in strangers}
        unknown = [self._unknown(uid, str(problem)) for uid, problem in problems.items()]
        unknown += [self._unknown(uid, "the file holds the state of another claim") for uid in strangers]
        boots = {uid: checkpoints[uid].from_this_boot for uid in self._kept}
        return ClaimInfoStateList(tuple(self._kept.values()), tuple(unknown), boots)

    def store(self, claims: ClaimInfoState | Iterable[ClaimInfoState]) -> None:
        if isinstance(claims, ClaimInfoState):
            self._kept.pop(claims.claim_uid, None)
            self._manager.create_checkpoint(claims.claim_uid, claims)
            self._kept[claims.claim_uid] = claims
        else:
            self._commit({claim.claim_uid: claim for claim in claims}, [])

    def store_list(self, claims: Iterable[ClaimInfoState]) -> None:
        """Claims that are unknown stay as they are: a list cannot say that they are gone."""
        wanted = {claim.claim_uid: claim for claim in claims}
        changed = {uid: claim for uid, claim in wanted.items() if self._kept.get(uid) != claim}
        self._commit(changed, [uid for uid in self._kept if uid not in wanted])

    def delete(self, *uids: str) -> None:
        self._commit({}, list(uids))

    def close(self) -> None:
        self._manager.close()

    def _commit(self, claims: dict[str, ClaimInfoState], gone: list[str]) -> None:
        for uid in (*claims, *gone):
            self._kept.pop(uid, None)
        failed: set[str] = set(claims)
        try:
            with self._manager.batch() as batch:
                for uid, claim in claims.items():
                    batch.create_checkpoint(uid, claim)
                for uid in gone:
                    batch.remove_checkpoint(uid)
            failed = set()
        except BatchFailed as error:
            failed = set(error.failures)
            raise
        finally:
            self._kept.update({uid: claim for uid, claim in claims.items() if uid not in failed})

    def _repaired(self, uid: str) -> bool:
        try:
            return self._manager.recover_checkpoint(uid).outcome in (Outcome.REPAIRED, Outcome.INTACT)
        except CheckpointError:
            return False  # a full disk, say: it stays damaged until somebody can write

    def _unknown(self, uid: str, why: str) -> UnknownClaim:
        previous = self._manager.previous_checkpoint(uid)
        trusted = previous is not None and previous.data.claim_uid == uid
        return UnknownClaim(uid, why, previous.data if previous and trusted else None)


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
