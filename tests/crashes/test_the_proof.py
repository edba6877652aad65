"""Would the proof notice? Each safeguard of the file store is taken away, and one of the scenarios has to fail."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from typing import Any
from unittest import mock

import pytest

from checkpointmanager._filestore import FileStore, commit, quarantine
from checkpointmanager._filestore.directory import Directory
from checkpointmanager.testing import Crash, every_crash

from .ledger import check
from .scenarios import SCENARIOS, closed, killed_and_restarted

Patch = Callable[[], Any]


def fails(names: Iterable[str], patch: Patch, aftermath: Callable[[Crash], object] = check) -> bool:
    for name in names:
        scenario = SCENARIOS[name]

        def act(given: Any, act: Callable[[Any], object] = scenario.act) -> None:
            with patch():
                act(given)

        try:
            every_crash(act, setup=scenario.setup).check(aftermath)
        except AssertionError:
            return True
    return False


def without_data_sync() -> Any:
    return mock.patch.object(commit, "sync")


def without_directory_sync() -> Any:
    return mock.patch.object(Directory, "sync")


def without_quarantine_sync() -> Any:
    return mock.patch.object(quarantine, "sync")


def without_quarantine() -> Any:
    return mock.patch.object(quarantine.Quarantine, "keep", return_value="")


def without_sync_of_the_parent() -> Any:
    return mock.patch("checkpointmanager._filestore.directory._sync_parent")


def with_the_name_taken_away_first() -> Any:
    """Unlink, then rename: as Windows programs do."""
    rename = Directory.rename

    def unlink_and_rename(self: Directory, old: str, new: str) -> None:
        self.discard(new)
        rename(self, old, new)

    return mock.patch.object(Directory, "rename", unlink_and_rename)


def with_the_file_overwritten_in_place() -> Any:
    def overwrite(self: Directory, old: str, new: str) -> None:
        with open(os.path.join(self.path, old), "rb") as source, open(os.path.join(self.path, new), "wb") as target:
            target.write(source.read())
            os.fsync(target.fileno())
        self.unlink(old)

    return mock.patch.object(Directory, "rename", overwrite)


@pytest.mark.parametrize(
    "patch",
    [
        without_data_sync,
        without_directory_sync,
        without_quarantine_sync,
        without_quarantine,
        without_sync_of_the_parent,
        with_the_name_taken_away_first,
        with_the_file_overwritten_in_place,
    ],
    ids=lambda patch: patch.__name__,
)
def test_a_missing_safeguard_is_noticed(patch: Patch) -> None:
    names = ["first creation of the directory", "update", "create over damage", "recover by rollback"]
    assert not fails(names, mock.MagicMock)
    assert fails(names, patch)


def test_a_directory_that_is_not_synced_when_it_is_opened_is_noticed() -> None:
    """What is seen after a kill was only in the kernel's cache, and the next power loss takes it away."""

    def crash_after_kill(nth: int) -> None:
        killed: list[bool] = []
        with mock.patch.object(FileStore, "_take_over"):
            crashes = every_crash(killed_and_restarted(nth, killed), setup=closed)
        crashes.check(check)

    with pytest.raises(AssertionError, match=r"may only (be|see) one of"):
        for nth in range(1, 60):
            crash_after_kill(nth)
