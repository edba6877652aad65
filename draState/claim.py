"""A claim in memory: its state, and what must not outlive the process."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from .state import ClaimInfoState


@dataclass(frozen=True, slots=True)
class ClaimInfo:
    """Immutable: a change is a new record, so that a reader never sees half of one.

    `prepared` and `unpreparing` are true only in the process that made them so: resources may not have
    survived whatever ended it. `unknown` says why the state cannot be trusted; then it is the previous
    generation's, or empty, and what it holds stays held.
    """

    state: ClaimInfoState
    prepared: bool = False
    unpreparing: bool = False
    annotations: Mapping[str, str] = field(default_factory=dict)
    from_this_boot: bool | None = True
    unknown: str = ""

    @property
    def uid(self) -> str:
        return self.state.claim_uid

    @property
    def name(self) -> tuple[str, str]:
        """(namespace, name): what people call it, not what it is."""
        return self.state.namespace, self.state.claim_name
