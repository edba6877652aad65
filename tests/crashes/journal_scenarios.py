"""Scenarios about the journal: it is settled, inherited, in doubt, or owes names to changes that are committed.

In the crash tests a journal has room for two groups of changes, and settles when three keys have changed.
"""

from __future__ import annotations

import errno
import gc
import os
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any
from unittest import mock

from checkpointmanager import CheckpointError, CheckpointExists, CheckpointManager, DirectoryUnusable
from checkpointmanager._filestore.journalfile import JournalFile
from checkpointmanager.testing import Call, acknowledge, dying, failing

from .oracle import DAMAGED, GONE, Begun, Done, Manager, batch, folder_of, put, remove, serve, transact, value_of
from .scenarios import LARGE, Scenario, new, three, three_closed

Live = Callable[[Manager], object]
JOURNAL = ".journal"


def kill(directory: Path, live: Live, **options: Any) -> None:
    """An owner that dies after `live`. That loses nothing; its locks are free."""
    with dying(directory, nth=1 << 60) as injector:
        live(new(directory, **options))
        injector.failed = Call("kill", "")
    gc.collect()


def kill_at(call: str, live: Live, *, nth: int = 1, about: str = "", **options: Any) -> Callable[[Path], None]:
    """An owner that dies instead of a chosen call."""

    def act(directory: Path) -> None:
        def die(manager: Manager) -> None:
            with suppress(KeyboardInterrupt), failing(manager.path, call, KeyboardInterrupt(), nth=nth, about=about):
                live(manager)

        kill(directory, die, **options)

    return act


# Settle


def update_a_until_it_settles(manager: Manager) -> None:
    for value in (3, 4, 5):
        put(manager, "a", value)


def fill_the_journal(manager: Manager) -> None:
    update_a_until_it_settles(manager)
    put(manager, "c", 3)


def change_many_keys(manager: Manager) -> None:
    batch(manager, a=3, b=1, c=GONE)
    put(manager, "c", 4)


def create_again_after_a_settle(manager: Manager) -> None:
    """The generations of c begin anew, while blocks of an older journal may have higher ones."""
    put(manager, "c", 3)
    put(manager, "c", 4)
    batch(manager, a=3, b=1, c=GONE)
    put(manager, "c", 5)


def write_too_much_for_the_journal(manager: Manager) -> None:
    put(manager, "a", 3)
    put(manager, "a", LARGE)
    put(manager, "a", 4)


def transact_too_much_for_the_journal(manager: Manager) -> None:
    transact(manager, a=LARGE, c=GONE)
    put(manager, "c", 3)


def without_room_for_a_journal(nth: int) -> Live:
    """The disk is full when the journal is, the n-th sync of the directory fails, and changes go the plain way."""

    def act(manager: Manager) -> None:
        put(manager, "c", 3)
        remove(manager, "c")
        with mock.patch.object(JournalFile, "write", side_effect=OSError(errno.ENOSPC, "full")):
            with failing(manager.path, "fsync", errno.EIO, about=".", nth=nth):
                put(manager, "b", 1)
            put(manager, "b", 2)
            put(manager, "c", 4)

    return act


# A sync fails, and the kernel forgets


def after_a_failed(call: str, live: Live, then: Live, *, nth: int = 1, about: str = "") -> Live:
    def act(manager: Manager) -> None:
        with suppress(CheckpointError), failing(manager.path, call, errno.EIO, nth=nth, about=about):
            live(manager)
        then(manager)

    return act


def say_again(manager: Manager) -> None:
    """Calls that write nothing: each says that a checkpoint exists, as the owner serves it."""
    for key in ("a", "c"):
        changes = ((key, value_of(manager, key)),)
        acknowledge(Begun(changes))
        with suppress(CheckpointExists):
            manager.create_checkpoint(key, "never", overwrite=False)
        acknowledge(Done(changes))


def in_doubt(live: Live, then: Live) -> Live:
    return after_a_failed("fdatasync", live, then)


def update_a(manager: Manager) -> None:
    put(manager, "a", 10)


def remove_c(manager: Manager) -> None:
    remove(manager, "c")


def create_c(manager: Manager) -> None:
    put(manager, "c", 11)


def a_without_c(manager: Manager) -> None:
    transact(manager, a=10, c=GONE)


def update_b_until_it_settles(manager: Manager) -> None:
    for value in (1, 2, 3):
        put(manager, "b", value)


def remove_c_and_settle(manager: Manager) -> None:
    remove(manager, "c")
    update_b_until_it_settles(manager)


def settle_then_create_c(manager: Manager) -> None:
    update_b_until_it_settles(manager)
    create_c(manager)


def two_in_one_group(manager: Manager) -> None:
    """Two threads whose changes share a sync."""
    threads = [threading.Thread(target=put, args=(manager, key, 10)) for key in ("a", "c")]
    groups = manager._store._journal._groups  # type: ignore[attr-defined]
    with groups.turn:
        for count, thread in enumerate(threads, start=1):
            thread.start()
            while groups._open is None or len(groups._open.members) < count:
                thread.join(0.001)
    for thread in threads:
        thread.join()


# Names that could not be changed after the commit


def owed(live: Live, then: Live, *, call: str = "rename", about: str = "a.json") -> Live:
    return after_a_failed(call, live, then, about=about)


def then_open(first: Callable[[Path], object], live: Live = lambda _: None, **options: Any) -> Callable[[Path], None]:
    """After a death another owner opens, shows what it finds, and goes on."""

    def act(directory: Path) -> None:
        first(directory)
        serve(directory, **options)
        with suppress(CheckpointError), new(directory, **options) as manager:
            live(manager)

    return act


def after_an_open_that_failed(first: Callable[[Path], object], nth: int) -> Callable[[Path], None]:
    def act(directory: Path) -> None:
        first(directory)
        with suppress(DirectoryUnusable), failing(folder_of(directory), "fsync", errno.EIO, nth=nth):
            new(directory).close()
        with new(directory) as manager:
            put(manager, "a", 12)

    return act


def after(live: Live, **options: Any) -> Callable[[Path], None]:
    return lambda directory: kill(directory, live, **options)


def rot_of_a_record(directory: Path) -> None:
    """What the damaged record says may be lost; the records behind it may not."""

    def live(manager: Manager) -> None:
        acknowledge(Begun((("a", 10),)))
        acknowledge(Begun((("a", DAMAGED),)))  # a limit: the power fails as well, before the file was written
        manager.create_checkpoint("a", 10)
        put(manager, "b", 10)

    kill(directory, live)
    with open(folder_of(directory) / JOURNAL, "r+b", buffering=0) as file:
        file.seek(4096 + 50)
        file.write(b"?")
        os.fsync(file.fileno())


def close_shared_and_create_again(nth: int) -> Callable[[Path], None]:
    """An owner closes, while the n-th sync of the directory fails; others go on without a journal."""

    def act(directory: Path) -> None:
        manager = new(directory)
        put(manager, "a", 10)
        with failing(manager.path, "fsync", errno.EIO, about=".", nth=nth):
            manager.close()
        with CheckpointManager[Any](folder_of(directory), sharing=True) as shared:
            remove(shared, "a")
            put(shared, "a", 11)

    return act


MIDDLE = kill_at("fdatasync", a_without_c)  # the record is written, and in memory only
COMMITTED = kill_at("rename", a_without_c, about="a.json")  # the record is durable, the names are half changed

JOURNAL_SCENARIOS: dict[str, Scenario] = {
    "settle, as the journal is full": Scenario(three, fill_the_journal, twice=True),
    "settle, as many keys have changed": Scenario(three, change_many_keys),
    "settle, then create again": Scenario(three, create_again_after_a_settle),
    "more than a journal holds": Scenario(three, write_too_much_for_the_journal),
    "a transaction with more than a journal holds": Scenario(three, transact_too_much_for_the_journal),
    **{
        f"no room for a journal, sync {nth} of names fails": Scenario(three, without_room_for_a_journal(nth))
        for nth in (1, 2, 3)
    },
    "in doubt, then calls that write nothing": Scenario(three, in_doubt(a_without_c, say_again), twice=True),
    "two in doubt, then another write": Scenario(three, in_doubt(two_in_one_group, update_b_until_it_settles)),
    "a large group in doubt": Scenario(
        three, after_a_failed("fsync", transact_too_much_for_the_journal, update_a, nth=2)
    ),
    "in doubt, then a death": Scenario(three_closed, then_open(after(in_doubt(a_without_c, lambda _: None)))),
    "owed, then settle": Scenario(three, owed(update_a, update_b_until_it_settles)),
    "a removal owed, then settle": Scenario(
        three, owed(remove_c, update_b_until_it_settles, call="unlink", about="c.json")
    ),
    "owed, then the same key": Scenario(three, owed(a_without_c, update_a)),
    "owed, then a death": Scenario(three_closed, then_open(after(owed(a_without_c, lambda _: None)), update_a)),
    "a settle whose sync of a file fails": Scenario(
        three, after_a_failed("fsync", fill_the_journal, update_b_until_it_settles, about="a.json")
    ),
    "a settle that forgets a removal": Scenario(
        three, after_a_failed("fsync", remove_c_and_settle, settle_then_create_c, about=".", nth=2), twice=True
    ),
    "a settle that fails, then a death": Scenario(
        three_closed,
        then_open(after(after_a_failed("fsync", update_a_until_it_settles, lambda _: None, about="a.json")), update_a),
    ),
    "a death before the commit": Scenario(three_closed, then_open(MIDDLE, update_b_until_it_settles), twice=True),
    "a death after the commit": Scenario(three_closed, then_open(COMMITTED, create_c), twice=True),
    "a death, then sharing": Scenario(three_closed, then_open(COMMITTED, create_c, sharing=True)),
    "a death, then atomic": Scenario(three_closed, then_open(COMMITTED, lambda _: None, durability="atomic")),
    "a death while sharing, before the sync": Scenario(
        three_closed, then_open(kill_at("fsync", update_a, about=".", sharing=True))
    ),
    **{
        f"a death, then an open whose sync {nth} fails": Scenario(three_closed, after_an_open_that_failed(MIDDLE, nth))
        for nth in (1, 2, 3)
    },
    "rot of a record": Scenario(three_closed, rot_of_a_record),
    **{
        f"close whose sync {nth} of names fails, then sharing": Scenario(
            three_closed, close_shared_and_create_again(nth)
        )
        for nth in (1, 2)
    },
}
