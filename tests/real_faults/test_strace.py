"""Every system call by which a real process changes its directory, refused by the kernel itself.

Each call of each change is made to fail with one errno or two, in the long form with each; the process goes on. The
directory then holds the old content or the new, the error says which, and the same call repeated succeeds.
"""

from __future__ import annotations

import errno
import itertools
import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from checkpointmanager import (
    BatchFailed,
    CheckpointError,
    CheckpointNotFound,
    CheckpointWriteFailed,
    DirectoryUnusable,
)

from ..checkpointmanager.processes import Agent
from ..long import LONG, sample
from .agent import CHANGES, KEYS, NEW, OLD, error_of, found_in
from .agent import victim as new_victim
from .strace import Call, Strace, Unavailable, check_available

ERRNOS = ("EIO", "ENOSPC", "EINTR", "EROFS", "EDQUOT", "ENOMEM") if LONG else ("EIO", "ENOSPC", "EINTR")
RETRIED = {"openat", "write", "fsync", "fdatasync"}  # by Python itself after EINTR

BEFORE = dict.fromkeys(KEYS, OLD)
AFTER: dict[str, dict[str, str]] = {
    "create": BEFORE | {"new": NEW},
    "overwrite": BEFORE | {"a": NEW},
    "update": BEFORE | {"a": NEW},
    "remove": {"b": OLD, "c": OLD},
    "batch": dict.fromkeys(KEYS, NEW),
}


@pytest.fixture(scope="module")
def victim() -> Iterator[Agent]:
    try:
        check_available()
    except Unavailable as why:
        pytest.skip(str(why))
    with new_victim() as victim:
        yield victim


@pytest.fixture(params=[False, True], ids=["owner", "sharer"])
def directory(request: pytest.FixtureRequest, tmp_path: Path, victim: Agent) -> Iterator[Path]:
    """Owned, or shared, by the victim; each change has been made once, so that Python has loaded all lazy imports."""
    directory = tmp_path / "claims"
    victim.ask("open", directory, sharing=request.param)
    for change in CHANGES:
        victim.ask("reset")
        victim.ask("change", change)
    yield directory
    victim.ask("close")


def _calls_of(victim: Agent, directory: Path, change: str, log: Path) -> list[Call]:
    victim.ask("reset")
    with Strace(victim.pid, directory, log) as seen:
        victim.ask("change", change)
    # Calls in two threads may both be the n-th of their name in their thread: they fail together, so once is enough.
    return list({(call.name, call.number): call for call in seen.calls()}.values())


@pytest.mark.parametrize("change", CHANGES)
def test_any_call_that_fails_leaves_old_or_new_and_the_error_says_which(
    victim: Agent, directory: Path, tmp_path: Path, change: str
) -> None:
    calls = _calls_of(victim, directory, change, tmp_path / "log")
    assert len(calls) >= (3 if change == "remove" else 5)
    for call, name in sample(itertools.product(calls, ERRNOS), 2):
        victim.ask("reset")
        with Strace(victim.pid, directory, tmp_path / "log", (call, name)) as strace:
            error = error_of(victim, change)
        # Which thread of a batch makes the n-th sync is not the same each time.
        assert strace.injected() or change == "batch", f"{name} was not injected into {call}"
        _check(_served(victim), change, error, name, strace.injected())
        victim.ask("change", change)
        assert found_in(directory) == AFTER[change]


def _served(victim: Agent) -> dict[str, Any]:
    """What the victim itself answers: a change that has not got its name yet is seen by its owner alone."""
    found = {}
    for key in (*KEYS, "new"):
        with suppress(CheckpointNotFound):
            found[key] = victim.ask("get", key)
    return found


def _check(found: dict[str, Any], change: str, error: CheckpointError | None, name: str, injected: list[Call]) -> None:
    after = AFTER[change]
    where = f"{name} in {injected}: {error}"
    if error is None:
        assert found == after, where
        assert all(_is_harmless(call, name) for call in injected), f"reported as a success: {where}"
        return
    assert isinstance(error, OSError), where
    assert error.errno == getattr(errno, name), where
    assert "/claims" in str(error)
    assert os.strerror(getattr(errno, name)) in str(error)
    if not isinstance(error, CheckpointWriteFailed):  # under sharing the lock is taken before anything is written
        assert isinstance(error, DirectoryUnusable), where
        assert found == BEFORE, where
        return
    failures = error.failures if isinstance(error, BatchFailed) else dict.fromkeys(BEFORE | after, error)
    if error.in_doubt:
        assert any(_decides(call) for call in injected), where
    for key in BEFORE | after:
        one = failures.get(key)
        of_names = any(call.of_directory or ".lock" in call.text for call in injected)  # of a sharer: it is visible
        failed = isinstance(one, CheckpointWriteFailed) and not (one.in_doubt and of_names)
        assert found.get(key) == (BEFORE if failed else after).get(key), f"{key}: {where}"


def _decides(call: Call) -> bool:
    """The append and the sync of the journal; of a sharer the syncs of the names."""
    if ".lock" in call.text:
        return True
    if call.name == "fsync":
        return call.of_directory
    return call.name in ("write", "fdatasync") and ".journal" in call.text


def _is_harmless(call: Call, name: str) -> bool:
    """Python repeats what was interrupted; a reader looks twice; leftovers may stay for now; the holder's name in the
    lock file is a courtesy; and what is committed gets its name later."""
    looked_at = call.name == "openat" and "O_CREAT" not in call.text
    named = call.name.startswith(("unlink", "link", "rename"))
    staged = name == "ENOSPC" and ".tmp-" in call.text  # the previous generation makes room for the next attempt
    return (name == "EINTR" and call.name in RETRIED) or looked_at or named or staged or ".lock" in call.text


@pytest.mark.parametrize("name", ERRNOS)
def test_any_call_that_fails_while_damage_is_replaced_leaves_the_damaged_bytes_or_the_new_file_and_a_copy(
    victim: Agent, directory: Path, tmp_path: Path, name: str
) -> None:
    damaged = b"half a file"
    file, kept = directory / "a.json", directory / ".quarantine"

    def damage() -> None:
        victim.ask("reset")
        file.write_bytes(damaged)
        with pytest.raises(CheckpointError):
            victim.ask("get", "a")

    damage()
    with Strace(victim.pid, directory, tmp_path / "log") as seen:
        victim.ask("change", "overwrite")
    calls = [call for call in seen.calls() if call.name != "openat" or "O_CREAT" in call.text]
    assert {"fsync", "linkat"} <= {call.name for call in calls}
    for call in calls:
        for old in kept.iterdir():
            old.unlink()
        damage()
        with Strace(victim.pid, directory, tmp_path / "log", (call, name)) as strace:
            error = error_of(victim, "overwrite")
        assert strace.injected()
        if error is not None:
            assert isinstance(error, CheckpointWriteFailed | DirectoryUnusable)
            assert file.read_bytes() == damaged or getattr(error, "in_doubt", False)
            victim.ask("change", "overwrite")
        assert victim.ask("get", "a") == NEW
        assert [copy.read_bytes() for copy in kept.iterdir()] == [damaged]
