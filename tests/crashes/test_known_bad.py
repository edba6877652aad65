"""Would the proof notice? Each safeguard of the file store is taken away, and one of the scenarios has to fail."""

from __future__ import annotations

import os
from contextlib import AbstractContextManager, nullcontext
from typing import Any
from unittest import mock

import pytest

from checkpointmanager._filestore.directory import Directory

from .known_bad import KnownBad, instead_of, loss_found, without
from .oracle import serve
from .scenarios import SCENARIOS, Scenario, closed, killed_and_restarted, two_updates

STORE = "checkpointmanager._filestore"


def with_the_name_taken_away_first() -> AbstractContextManager[Any]:
    """Unlink, then rename: as Windows programs do."""
    rename = Directory.rename

    def unlink_and_rename(self: Directory, old: str, new: str) -> None:
        self.discard(new)
        rename(self, old, new)

    return mock.patch.object(Directory, "rename", unlink_and_rename)


def with_the_file_overwritten_in_place() -> AbstractContextManager[Any]:
    def overwrite(self: Directory, old: str, new: str) -> None:
        with open(os.path.join(self.path, old), "rb") as source, open(os.path.join(self.path, new), "wb") as target:
            target.write(source.read())
            os.fsync(target.fileno())
        self.unlink(old)

    return mock.patch.object(Directory, "rename", overwrite)


KNOWN_BAD = {
    "new files are not synced": KnownBad(SCENARIOS["update"], without(f"{STORE}.commit.sync")),
    "names are not synced": KnownBad(SCENARIOS["update"], without(f"{STORE}.directory.Directory.sync")),
    "the name of the directory is not synced": KnownBad(
        SCENARIOS["first creation of the directory"], without(f"{STORE}.directory._sync_parent")
    ),
    "copies in quarantine are not synced": KnownBad(
        SCENARIOS["create over damage"], without(f"{STORE}.quarantine.sync")
    ),
    "nothing is copied to quarantine": KnownBad(
        SCENARIOS["recover by rollback"], instead_of(f"{STORE}.quarantine.Quarantine.keep", lambda *_, **__: "")
    ),
    "the old name goes first": KnownBad(SCENARIOS["update"], with_the_name_taken_away_first),
    "files are overwritten in place": KnownBad(SCENARIOS["update"], with_the_file_overwritten_in_place),
}


@pytest.mark.parametrize("name", KNOWN_BAD)
def test_a_missing_safeguard_is_noticed(name: str) -> None:
    bad = KNOWN_BAD[name]
    assert not loss_found(bad._replace(patch=nullcontext)), "the scenario fails without it, too"
    assert loss_found(bad)


def test_an_owner_that_serves_what_a_kill_left_in_memory_is_noticed() -> None:
    """It has to sync the directory before it serves: the next power loss takes away what was never synced."""
    for nth in range(1, 60):
        act, _ = killed_and_restarted(two_updates, nth, then=serve)
        bad = KnownBad(Scenario(closed, act), instead_of(f"{STORE}.FileStore._take_over", lambda *_: None))
        if loss_found(bad):
            return
    pytest.fail("no power loss breaks a promise")
