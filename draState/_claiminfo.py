"""A claim in memory: its state, and what must not outlive the process."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from ._claimstate import ClaimInfoState

_NO_ANNOTATIONS: Mapping[str, str] = MappingProxyType({})  # one for all claims, which are many


@dataclass(frozen=True, slots=True)
class ClaimInfo:
    """Immutable: a change is a new record, so that a reader never sees half of one.

    `prepared` and `unpreparing` are true only in the process that made them so: resources may not have
    survived whatever ended it. `unknown` says why the state cannot be trusted, and what it holds stays held.
    It is then the previous generation's, or empty; or, `in_doubt`, it is whole, and only whether the disk has
    it too is not known. `before_doubt` is then the state that certainly was there, which containers still get.
    """

    state: ClaimInfoState
    prepared: bool = False
    unpreparing: bool = False
    annotations: Mapping[str, str] = field(default_factory=lambda: _NO_ANNOTATIONS)  # the agent's own notes
    from_this_boot: bool | None = True  # whether it was written since the last reboot; None: not known
    unknown: str = ""
    in_doubt: bool = False
    before_doubt: ClaimInfoState | None = None

    @property
    def uid(self) -> str:
        """The claim's identity, and the name of its file."""
        return self.state.claim_uid

    @property
    def name(self) -> tuple[str, str]:
        """(namespace, name): what people call it, not what it is."""
        return self.state.namespace, self.state.claim_name

    @property
    def guessed(self) -> bool:
        """True if nobody can say which pods use the claim: its file is damaged."""
        return bool(self.unknown) and not self.in_doubt

    @property
    def served(self) -> ClaimInfoState:
        """What containers get: nothing of a change that is in doubt, and all that was acknowledged before it."""
        return self.before_doubt or self.state

    def doubted(self, old: ClaimInfo | None, why: str) -> ClaimInfo:
        """This record, which the disk may have or not, in place of `old`: it holds the pods of both."""
        if old is None or old.guessed:
            return replace(self, prepared=False, unknown=why, in_doubt=True)
        state = replace(self.state, pod_uids=self.state.pod_uids | old.state.pod_uids)
        return replace(self, state=state, prepared=old.prepared, unknown=why, in_doubt=True, before_doubt=old.served)

    def rewritten(self, state: ClaimInfoState) -> ClaimInfo:
        """With a whole state that is to be written: nothing about it is unknown any more."""
        return replace(self, state=state, unknown="", in_doubt=False, before_doubt=None)
