"""The events an agent gets: each once, in the log and in the callback, outside all locks, and nothing printed."""

from __future__ import annotations

import errno
import logging
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from checkpointmanager import CheckpointManager, CorruptCheckpoint, Event, EventKind, KeyLocks, Reason
from checkpointmanager._events import LEVELS, Events
from checkpointmanager.testing import damage, failing

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


def test_damage_names_key_path_and_reason(manager: LeaseManager, directory: Path, events: list[Event]) -> None:
    manager.create_checkpoint("a", OLD)
    damage.flip_bit(directory, "a")

    with pytest.raises(CorruptCheckpoint):
        manager.get_checkpoint("a")

    (event,) = events
    assert (event.kind, event.key, event.reason) == (EventKind.DAMAGE, "a", Reason.CHECKSUM_MISMATCH)
    assert event.path == str(directory / "a.json")


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


def test_a_slow_sync_is_reported_with_its_seconds(
    manager: LeaseManager, directory: Path, events: list[Event], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("checkpointmanager._filestore.store.SLOW_SYNC_SECONDS", -1.0)
    manager.create_checkpoint("a", OLD)

    (event,) = events
    assert (event.kind, event.path, event.key) == (EventKind.SLOW_SYNC, str(directory), "")
    assert event.seconds >= 0


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("tmpfs", [EventKind.FORGETFUL_FILE_SYSTEM]),
        ("overlay", [EventKind.FORGETFUL_FILE_SYSTEM]),
        ("nfs4", [EventKind.UNRELIABLE_FILE_SYSTEM]),
        ("ext4", []),
        ("", []),
    ],
)
def test_a_file_system_that_forgets_or_lies_is_reported(
    directory: Path, monkeypatch: pytest.MonkeyPatch, kind: str, expected: list[EventKind]
) -> None:
    monkeypatch.setattr("checkpointmanager._filestore.directory.file_system_of", lambda _: kind)
    events: list[Event] = []
    CheckpointManager(directory, LEASES, on_event=events.append).close()

    assert kinds(events) == expected
    assert all(kind in event.detail for event in events)


def test_a_change_that_is_durable_but_not_in_place_is_reported(real_directory: Path) -> None:
    events: list[Event] = []
    with CheckpointManager(real_directory, LEASES, on_event=events.append) as manager:
        manager.create_checkpoint("a", OLD)
        with failing(real_directory, "rename", errno.EACCES, lasting=True):
            manager.create_checkpoint("a", NEW)

        assert kinds(events) == [EventKind.UNSETTLED]
        assert "a: Permission denied: its change is safe in the journal" in events[0].detail
        assert manager.get_checkpoint("a").data == NEW


def test_what_a_dead_owner_had_committed_is_reported(real_directory: Path) -> None:
    with CheckpointManager(real_directory, LEASES) as manager:
        manager.create_checkpoint("a", OLD)
        manager.create_checkpoint("b", OLD)
        copy = shutil.copytree(real_directory, real_directory.parent / "copy")
    events: list[Event] = []

    CheckpointManager(copy, LEASES, on_event=events.append).close()

    assert [(event.kind, event.path) for event in events] == [(EventKind.JOURNAL_REPLAYED, str(copy))]
    assert "changes of 2 keys" in events[0].detail


def test_the_log_has_the_same_with_fields(
    manager: LeaseManager, directory: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (directory / "a.json").write_bytes(b"")
    with caplog.at_level(logging.DEBUG, "checkpointmanager"):
        manager.create_checkpoint("a", OLD)

    damage, kept = (record.__dict__ for record in caplog.records)
    for fields in (damage, kept):
        assert (fields["name"], fields["levelname"]) == ("checkpointmanager", "WARNING")
        assert (fields["key"], fields["path"], fields["reason"]) == ("a", str(directory / "a.json"), Reason.EMPTY)
    assert (damage["event"], kept["event"]) == (EventKind.DAMAGE, EventKind.QUARANTINED)


def test_good_news_is_logged_as_information(directory: Path, caplog: pytest.LogCaptureFixture) -> None:
    directory.mkdir(mode=0o700)
    (directory / ".tmp-dead").write_bytes(b"")
    with caplog.at_level(logging.DEBUG, "checkpointmanager"):
        CheckpointManager(directory, LEASES).close()
    assert [record.levelname for record in caplog.records] == ["INFO"]


# Nothing is lost, and nothing needs to be done.
INFORMATION = {EventKind.RECOVERED, EventKind.STALE_FILES, EventKind.JOURNAL_REPLAYED}
ERRORS = {EventKind.SCHEMA_MISMATCH}  # the program is wrong


@pytest.mark.parametrize("kind", EventKind)
def test_every_kind_is_a_warning_unless_nothing_is_lost(kind: EventKind, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG, "checkpointmanager"):
        Events().emit(Event(kind, "/claims", "what happened"))

    assert set(LEVELS) == set(EventKind)
    (record,) = caplog.records
    expected = logging.INFO if kind in INFORMATION else logging.ERROR if kind in ERRORS else logging.WARNING
    assert record.levelno == expected
    assert record.getMessage() == f"/claims: {kind}: what happened"


@pytest.mark.parametrize("reason", Reason)
def test_a_line_of_the_log_says_what_happened_and_why(reason: Reason, caplog: pytest.LogCaptureFixture) -> None:
    Events().emit(Event(EventKind.DAMAGE, "/claims/a.json", "800 bytes", "a", reason))

    assert caplog.messages == [f"/claims/a.json: damage ({reason}): 800 bytes"]


@pytest.mark.parametrize(
    ("harm", "kind", "level"),
    [(damage.flip_bit, EventKind.RECOVERED, "INFO"), (damage.ruin, EventKind.ROLLED_BACK, "WARNING")],
    ids=["an exact repair", "a rollback"],
)
def test_a_rollback_is_a_warning_and_an_exact_repair_is_not(
    directory: Path, caplog: pytest.LogCaptureFixture, harm: Callable[[Path, str], object], kind: EventKind, level: str
) -> None:
    caplog.set_level(logging.DEBUG, "checkpointmanager")
    with CheckpointManager(directory, LEASES) as manager:
        manager.create_checkpoint("a", OLD)
        manager.create_checkpoint("a", NEW)
        harm(directory, "a")
        manager.recover_checkpoint("a", rollback=True)

    last = caplog.records[-1].__dict__
    assert (last["event"], last["levelname"]) == (kind, level)
    assert f"a.json: {kind} ({Reason.CHECKSUM_MISMATCH}): " in caplog.messages[-1]


def test_an_interrupt_in_the_callback_costs_no_other_event() -> None:
    seen: list[str] = []

    def interrupt(event: Event) -> None:
        seen.append(event.detail)
        if len(seen) == 1:
            raise KeyboardInterrupt

    locks = KeyLocks()
    events = Events(interrupt, locks=locks)
    with locks.locked("a"):
        for number in range(3):
            events.emit(Event(EventKind.SLOW_SYNC, "/claims", str(number)))
    with pytest.raises(KeyboardInterrupt):
        events.deliver()
    events.emit(Event(EventKind.SLOW_SYNC, "/claims", "3"))
    assert seen == ["0", "1", "2", "3"]


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


def test_events_of_a_failed_call_are_reported_too(directory: Path) -> None:
    events: list[Event] = []
    with CheckpointManager(directory, LEASES, on_event=events.append) as manager:
        (directory / "a.json").write_bytes(b"")
        with pytest.raises(CorruptCheckpoint):
            manager.update_checkpoint("a", lambda lease: lease)
    assert kinds(events) == [EventKind.DAMAGE]


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
