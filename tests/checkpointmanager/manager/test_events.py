"""The events an agent gets: each once, in the log and in the callback, outside all locks, and nothing printed."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path

import pytest

from checkpointmanager import CheckpointManager, CorruptCheckpoint, Event, EventKind, Reason, Schema
from checkpointmanager.testing import damage

from ..leases import LEASES, NEW, OLD, LeaseManager


def kinds(events: list[Event]) -> list[EventKind]:
    return [event.kind for event in events]


def test_a_quiet_life_has_no_events(manager: LeaseManager, events: list[Event]) -> None:
    manager.create_checkpoint("a", OLD)
    manager.create_checkpoint("a", NEW)
    manager.load()
    manager.verify()
    manager.remove_checkpoint("a")
    assert events == []


ACTIONS: dict[str, tuple[Callable[[LeaseManager], object], list[EventKind]]] = {
    "load": (lambda m: m.load(), [EventKind.DAMAGE]),
    "verify": (lambda m: m.verify(), [EventKind.DAMAGE]),
    "create": (lambda m: m.create_checkpoint("a", OLD), [EventKind.DAMAGE, EventKind.QUARANTINED]),
    "remove": (lambda m: m.remove_checkpoint("a"), [EventKind.DAMAGE, EventKind.QUARANTINED]),
    "hopeless": (lambda m: m.recover_checkpoint("a"), [EventKind.DAMAGE]),
    "rollback": (
        lambda m: m.recover_checkpoint("a", rollback=True),
        [EventKind.DAMAGE, EventKind.QUARANTINED, EventKind.ROLLED_BACK],
    ),
}


@pytest.mark.parametrize("action", ACTIONS)
def test_each_thing_is_reported_once(directory: Path, action: str) -> None:
    with CheckpointManager(directory, LEASES) as manager:
        manager.create_checkpoint("a", OLD)
        manager.create_checkpoint("a", NEW)
    damage.ruin(directory, "a")
    events: list[Event] = []
    act, expected = ACTIONS[action]

    with CheckpointManager(directory, LEASES, on_event=events.append) as manager:
        act(manager)

    assert kinds(events) == expected


def test_the_log_and_the_callback_get_the_same_fields(
    manager: LeaseManager, directory: Path, events: list[Event], caplog: pytest.LogCaptureFixture
) -> None:
    (directory / "a.json").write_bytes(b"")
    with caplog.at_level(logging.DEBUG, "checkpointmanager"):
        manager.create_checkpoint("a", OLD)

    assert kinds(events) == [EventKind.DAMAGE, EventKind.QUARANTINED]
    for record, event in zip(caplog.records, events, strict=True):
        assert (event.key, event.path, event.reason) == ("a", str(directory / "a.json"), Reason.EMPTY)
        fields = record.__dict__
        assert (fields["event"], fields["key"], fields["path"], fields["reason"]) == (
            event.kind,
            event.key,
            event.path,
            event.reason,
        )
        assert record.getMessage() == f"{event.path}: {event.kind} (empty): {event.detail}"


def leave_a_temp_file(directory: Path) -> None:
    (directory / ".tmp-dead").write_bytes(b"")


def recover(directory: Path) -> None:
    with CheckpointManager(directory, LEASES) as manager:
        manager.recover_checkpoint("a", rollback=True)


def repair(directory: Path) -> None:
    damage.flip_bit(directory, "a")
    recover(directory)


def roll_back(directory: Path) -> None:
    damage.ruin(directory, "a")
    recover(directory)


def read_as_another_type(directory: Path) -> None:
    with CheckpointManager(directory, Schema("Lease", type=dict[str, int])) as manager:
        manager.load()


LEVELS: dict[EventKind, tuple[Callable[[Path], None], str]] = {
    EventKind.STALE_FILES: (leave_a_temp_file, "INFO"),  # nothing is lost
    EventKind.RECOVERED: (repair, "INFO"),
    EventKind.ROLLED_BACK: (roll_back, "WARNING"),
    EventKind.SCHEMA_MISMATCH: (read_as_another_type, "ERROR"),  # the program is wrong
}


@pytest.mark.parametrize("kind", LEVELS)
def test_an_event_is_a_warning_unless_nothing_is_lost_or_the_program_is_wrong(
    directory: Path, caplog: pytest.LogCaptureFixture, kind: EventKind
) -> None:
    caplog.set_level(logging.DEBUG, "checkpointmanager")
    provoke, level = LEVELS[kind]
    with CheckpointManager(directory, LEASES) as manager:
        manager.create_checkpoint("a", OLD)
        manager.create_checkpoint("a", NEW)

    provoke(directory)
    CheckpointManager(directory, LEASES).close()

    assert (kind, level) in [(record.__dict__["event"], record.levelname) for record in caplog.records]


def test_an_interrupt_in_the_callback_costs_no_other_event(directory: Path) -> None:
    seen: list[Event] = []

    def interrupt(event: Event) -> None:
        seen.append(event)
        if len(seen) == 1:
            raise KeyboardInterrupt

    with CheckpointManager(directory, LEASES, on_event=interrupt) as manager:
        for key in "abc":
            (directory / f"{key}.json").write_bytes(b"")
        with pytest.raises(KeyboardInterrupt), manager.batch() as batch:
            for key in "abc":
                batch.create_checkpoint(key, NEW)
        manager.load()
        manager.update_checkpoint("a", lambda lease: lease)
        (directory / "d.json").write_bytes(b"")
        manager.verify()
    assert sorted((event.key, event.kind) for event in seen) == [
        *((key, kind) for key in "abc" for kind in (EventKind.DAMAGE, EventKind.QUARANTINED)),
        ("d", EventKind.DAMAGE),
    ]


@pytest.mark.parametrize("sharing", [False, True])
def test_the_callback_may_use_the_manager_even_for_the_same_key(directory: Path, sharing: bool) -> None:
    seen: list[object] = []

    def answer(event: Event) -> None:
        if event.kind is EventKind.QUARANTINED:
            seen.append(manager.get_checkpoint("a").data)
            manager.create_checkpoint("a", OLD)
            manager.update_checkpoint("a", lambda lease: lease)
            manager.create_checkpoint("b", OLD)
            manager.recover_checkpoint("a")

    with CheckpointManager(directory, LEASES, sharing=sharing, on_event=answer) as manager:
        (directory / "a.json").write_bytes(b"")
        manager.create_checkpoint("a", NEW)

        assert seen == [NEW], "the write is done when it is reported"
        assert manager.get_checkpoint("a").data == OLD
        assert "b" in manager


def test_the_callback_may_close_the_manager(directory: Path) -> None:
    def close(_: Event) -> None:
        manager.close()

    manager = CheckpointManager(directory, LEASES, on_event=close)
    (directory / "a.json").write_bytes(b"")
    manager.create_checkpoint("a", NEW)
    CheckpointManager(directory, LEASES).close()


def test_a_callback_that_changes_on_every_event_ends(directory: Path) -> None:
    events: list[Event] = []

    def recover(event: Event) -> None:
        events.append(event)
        if event.kind is EventKind.DAMAGE:
            manager.recover_checkpoint("a")

    with CheckpointManager(directory, LEASES, on_event=recover) as manager:
        manager.create_checkpoint("a", OLD)
        damage.flip_bit(directory, "a")
        with pytest.raises(CorruptCheckpoint):
            manager.get_checkpoint("a")
        assert manager.get_checkpoint("a").data == OLD
    assert kinds(events)[:1] == [EventKind.DAMAGE]
    assert EventKind.RECOVERED in kinds(events)


def test_what_the_callback_raises_is_logged_and_goes_no_further(
    directory: Path, caplog: pytest.LogCaptureFixture
) -> None:
    events: list[Event] = []

    def fail(event: Event) -> None:
        events.append(event)
        raise RuntimeError("the agent's own bug")

    with CheckpointManager(directory, LEASES, on_event=fail) as manager:
        (directory / "a.json").write_bytes(b"")
        manager.create_checkpoint("a", NEW)
        assert manager.get_checkpoint("a").data == NEW

    assert len(events) == 2, "a failing callback still gets the next event"
    errors = [record for record in caplog.records if record.levelname == "ERROR"]
    assert len(errors) == 2
    assert all("on_event callback failed" in record.getMessage() and record.exc_info for record in errors)


def test_nothing_is_printed(real_directory: Path, capfd: pytest.CaptureFixture[str]) -> None:
    real_directory.mkdir(mode=0o700)
    (real_directory / ".tmp-dead").write_bytes(b"")
    with CheckpointManager(real_directory, LEASES) as manager:
        manager.create_checkpoint("a", OLD)
        manager.create_checkpoint("a", NEW)
        damage.ruin(real_directory, "a")
        manager.load()
        manager.recover_checkpoint("a", rollback=True)
        manager.remove_checkpoint("a")
    assert capfd.readouterr() == ("", "")
