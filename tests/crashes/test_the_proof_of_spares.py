"""Would the proof notice? Each rule for spares is broken, and one of the scenarios has to fail."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from checkpointmanager._filestore import commit, recovery
from checkpointmanager._filestore.spares import Spare, Spares
from checkpointmanager._format import newest
from checkpointmanager.testing import every_crash
from checkpointmanager.testing._scratch import fast_folder
from tests.checkpointmanager import spares

from .ledger import check
from .scenarios import Scenario
from .spare_scenarios import SPARED, killed_and_restarted, spared

Patch = Callable[[], Any]


@pytest.fixture(autouse=True)
def over_spares() -> Iterator[None]:
    spares.skip_unless_possible_in(Path(fast_folder()))
    with spares.kept_order(True):
        yield


def fails(name: str, patch: Patch) -> bool:
    """With the rule broken in the scenario and in its aftermath, but not in what comes before."""
    scenario = SPARED[name]

    def act(given: Any) -> None:
        with patch():
            scenario.act(given)

    try:
        crashes = Scenario(scenario.setup, act, 0).crashes("spares")
        with patch():
            crashes.check(check)
    except AssertionError:
        return True
    return False


def with_pending_spares() -> Any:
    """Pending spares are used again: they are free as soon as their names are exchanged."""
    return mock.patch.object(Spares, "put_back", Spares._set_free)


def without_data_sync() -> Any:
    return mock.patch.object(commit, "sync_data")


def without_recovery() -> Any:
    return mock.patch("checkpointmanager._filestore.recover", return_value="")


@contextmanager
def with_the_lowest_generation() -> Iterator[None]:
    with mock.patch.object(newest, "_generation", lambda candidate: -candidate.generation):
        yield


def with_generations_that_restart() -> Any:
    """A removed key begins at one again, although spares hold higher generations of it."""
    return mock.patch.object(Spares, "highest_generation", return_value=0)


def with_failures_that_are_only_reported() -> Any:
    """A failed write is not removed durably before the failure is reported."""

    def forget(self: commit.Commit, _: OSError | None) -> None:
        self._written.clear()

    return mock.patch.object(commit.Commit, "_drop_written", forget)


def with_unsynced_names_after_a_removal_by_hand() -> Any:
    """There is nothing to exchange with, so the spare gets the name, which is acknowledged at once."""
    sync_names = commit.Commit._sync_names

    def skip(self: commit.Commit, error_before: OSError | None) -> bool:
        return self._spares_were_renamed or sync_names(self, error_before)  # type: ignore[attr-defined]

    return mock.patch.multiple(commit.Commit, _sync_names=skip, _spares_were_renamed=True, create=True)


@pytest.mark.parametrize(
    ("name", "patch"),
    [
        ("many updates of few spares", with_pending_spares),
        ("many updates", with_pending_spares),
        ("one update", without_data_sync),
        ("one update", without_recovery),
        ("many updates", with_the_lowest_generation),
        ("remove, then create again", with_generations_that_restart),
        ("data sync fails", with_failures_that_are_only_reported),
        ("removed by hand", with_unsynced_names_after_a_removal_by_hand),
    ],
    ids=lambda value: value if isinstance(value, str) else value.__name__,
)
def test_a_broken_rule_is_noticed(name: str, patch: Patch) -> None:
    assert not fails(name, mock.MagicMock)
    assert fails(name, patch)


def without_failures_that_are_remembered() -> Any:
    """Spares that were pending when a sync of the directory failed are used again after the next one."""

    def put_back(self: Spares, spare: Spare) -> None:
        spare.pending_since = self._directory.syncs_begun
        self._pending.append(spare)

    def settle(self: Spares) -> None:
        while self._pending and self._pending[0].pending_since < self._directory.last_ended:
            self._set_free(self._pending.popleft())

    return mock.patch.multiple(Spares, put_back=put_back, _settle=settle)


def test_spares_that_are_used_again_after_a_failed_directory_sync_are_noticed() -> None:
    assert fails("directory sync fails", without_failures_that_are_remembered)


def test_an_owner_that_trusts_bytes_which_were_never_synced_is_noticed() -> None:
    """After a kill they are in memory, and whole; the next power loss tears the file that got its name from them."""
    with mock.patch.object(recovery, "_write_again"), pytest.raises(AssertionError, match="may only"):
        for nth in range(1, 20):
            every_crash(killed_and_restarted(nth, []), setup=spared, in_order=True).check(check)
