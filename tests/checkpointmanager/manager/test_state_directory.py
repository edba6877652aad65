"""state_directory() names the folder that systemd made, or says why there is none."""

from __future__ import annotations

from pathlib import Path

import pytest

from checkpointmanager import CheckpointCache, CheckpointManager, DirectoryUnusable, FileStore, state_directory
from draState import ClaimInfoCache

from ..leases import LEASES, NEW


def test_every_class_that_takes_a_directory_takes_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STATE_DIRECTORY", str(tmp_path))
    with CheckpointManager(state_directory("leases"), LEASES) as manager:
        manager.create_checkpoint("a", NEW)
    with CheckpointCache(state_directory("leases"), LEASES) as cache:
        assert cache["a"] == NEW
    FileStore(state_directory("bytes")).close()
    ClaimInfoCache(state_directory("claims")).close()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["bytes", "claims", "leases"]


@pytest.mark.parametrize("given", ["", "state", "/var/lib/agent:/var/lib/other"])
def test_there_is_no_default(given: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STATE_DIRECTORY", given)
    with pytest.raises(DirectoryUnusable, match=r"leases: \$STATE_DIRECTORY"):
        state_directory("leases")


def test_without_systemd_it_says_what_the_unit_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("STATE_DIRECTORY", raising=False)
    with pytest.raises(DirectoryUnusable, match="the unit needs StateDirectory="):
        state_directory("leases")


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "/etc", "a\0"])
def test_the_name_is_that_of_one_folder(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STATE_DIRECTORY", "/var/lib/agent")
    with pytest.raises(ValueError, match="the name of a folder"):
        state_directory(name)
