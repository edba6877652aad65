"""A change releases what it holds however it ends: the store, its keys, and the events that wait for both."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pytest

from checkpointmanager import (
    CheckpointError,
    CheckpointManager,
    CheckpointWriteFailed,
    CorruptCheckpoint,
    Event,
    EventKind,
    MemoryStore,
    Put,
    Remove,
)

LIMIT = 20.0  # seconds, for a test that hangs


class Refusing(MemoryStore):
    """Raises `error` at the step of a change that has this name, and counts the changes inside."""

    def __init__(self) -> None:
        super().__init__()
        self.step = ""
        self.error: BaseException = CheckpointError("refused")
        self.inside = 0

    def _at(self, step: str) -> None:
        if step == self.step:
            raise self.error

    @contextmanager
    def writing(self) -> Iterator[None]:
        self._at("enter")
        self.inside += 1
        try:
            yield
        finally:
            self.inside -= 1
            self._at("leave")

    def check_owner(self, keys: Sequence[str] = ()) -> None:
        self._at("check owner")

    def commit(self, changes: Sequence[Put | Remove], *, together: bool = False) -> Mapping[str, CheckpointWriteFailed]:
        self._at("commit")
        return super().commit(changes, together=together)


@pytest.fixture
def store() -> Refusing:
    return Refusing()


@pytest.mark.parametrize("error", [CheckpointError("refused"), RuntimeError("a bug"), KeyboardInterrupt()], ids=repr)
@pytest.mark.parametrize("step", ["enter", "check owner", "commit", "leave"])
def test_a_change_that_breaks_off_at_any_step_holds_nothing_afterwards(
    store: Refusing, step: str, error: BaseException
) -> None:
    events: list[Event] = []
    manager = CheckpointManager(store, on_event=events.append)
    store.step, store.error = step, error
    with pytest.raises(type(error)):
        manager.create_checkpoint("a", 1)
    store.step = ""

    assert store.inside == 0
    with ThreadPoolExecutor(1) as pool:
        pool.submit(manager.create_checkpoint, "a", 2).result(LIMIT)
    store.current["a"] = b"damaged"
    with pytest.raises(CorruptCheckpoint):
        manager.get_checkpoint("a")
    assert [event.kind for event in events] == [EventKind.DAMAGE]
