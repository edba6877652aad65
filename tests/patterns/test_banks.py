"""Values in banks, as in salt's cache of minion data: a bank and a key make one name."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from checkpointmanager import CheckpointManager, CorruptCheckpoint
from checkpointmanager.testing import damage


class Banks:
    """Any text is a bank or a key; a bank may contain others."""

    def __init__(self, directory: Path) -> None:
        self.manager = CheckpointManager(directory)

    def store(self, bank: str, key: str, value: Any) -> None:
        self.manager.create_checkpoint(f"{bank}/{key}", value)

    def fetch(self, bank: str, key: str) -> Any:
        """The value, or {} if there is none."""
        checkpoint = self.manager.get_checkpoint(f"{bank}/{key}", default=None)
        return checkpoint.data if checkpoint else {}

    def updated(self, bank: str, key: str) -> datetime | None:
        checkpoint = self.manager.get_checkpoint(f"{bank}/{key}", default=None)
        return checkpoint.written if checkpoint else None

    def list(self, bank: str) -> list[str]:
        """The keys and banks that are directly in a bank."""
        inside = [name.removeprefix(f"{bank}/") for name in self.manager if name.startswith(f"{bank}/")]
        return sorted({name.split("/")[0] for name in inside})

    def flush(self, bank: str) -> None:
        """Remove a bank with everything in it, all or nothing."""
        with self.manager.transaction() as transaction:
            for name in [name for name in self.manager if name.startswith(f"{bank}/")]:
                transaction.remove_checkpoint(name)


@pytest.fixture
def banks(tmp_path: Path) -> Banks:
    banks = Banks(tmp_path / "banks")
    for minion in ("web-1", "web-2"):
        banks.store(f"minions/{minion}", "grains", {"id": minion})
    banks.store("tokens", "0c9f", {"user": "root"})
    return banks


def test_banks_are_listed_and_fetched(banks: Banks) -> None:
    assert banks.list("minions") == ["web-1", "web-2"]
    assert banks.list("minions/web-1") == ["grains"]
    assert banks.fetch("minions/web-1", "grains") == {"id": "web-1"}
    assert banks.fetch("minions/web-3", "grains") == {}
    assert banks.updated("minions/web-3", "grains") is None
    assert (banks.updated("tokens", "0c9f") or datetime.min.replace(tzinfo=UTC)) <= datetime.now(UTC)


def test_a_bank_goes_as_a_whole_and_no_other(banks: Banks) -> None:
    banks.flush("minions")
    assert (banks.list("minions"), banks.list("tokens")) == ([], ["0c9f"])


def test_no_name_leaves_the_directory(banks: Banks, tmp_path: Path) -> None:
    banks.store("../..", "etc/passwd", {"a": 1})
    assert banks.fetch("../..", "etc/passwd") == {"a": 1}
    assert os.listdir(tmp_path) == ["banks"]
    assert "%2E./../etc/passwd".replace("/", "%2F") + ".json" in os.listdir(tmp_path / "banks")


def test_damage_costs_one_value_and_is_not_an_empty_one(banks: Banks) -> None:
    banks.manager.close()
    directory = Path(banks.manager.path)
    damage.truncate(directory, "minions/web-1/grains")
    again = Banks(directory)
    with pytest.raises(CorruptCheckpoint):
        again.fetch("minions/web-1", "grains")
    assert again.fetch("minions/web-2", "grains") == {"id": "web-2"}
