"""The interface of everything that takes part in the comparison."""

from __future__ import annotations

from collections.abc import Iterable, Sized
from pathlib import Path
from typing import Protocol, runtime_checkable

from draState import ClaimInfoState

State = ClaimInfoState


class Contender(Protocol):
    """One way to keep claims in a directory."""

    name: str
    durable: bool
    settings: str

    def open(self, directory: Path) -> None: ...
    def update(self, state: State) -> None: ...
    def update_many(self, states: Iterable[State]) -> None: ...
    def fill(self, states: Iterable[State]) -> None:
        """Like update_many, before the clock starts and as fast as possible; a crash may lose it."""
        ...

    def remove(self, uid: str) -> None: ...
    def load(self) -> Sized:
        """Read everything into objects, as after a restart, and return them all."""
        ...

    def close(self) -> None: ...


@runtime_checkable
class Transacting(Contender, Protocol):
    """A contender that can change several claims together or not at all."""

    def update_together(self, states: Iterable[State]) -> None: ...


class OneByOne:
    """For contenders without a batch of their own."""

    def update(self, state: State) -> None:
        raise NotImplementedError

    def update_many(self, states: Iterable[State]) -> None:
        for state in states:
            self.update(state)

    fill = update_many
