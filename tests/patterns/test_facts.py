"""Facts about hosts that expire, as in ansible's fact cache: what can be gathered again may be lost."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from checkpointmanager import CheckpointManager, CorruptCheckpoint, EventKind
from checkpointmanager.testing import damage

Clock = Callable[[], datetime]


def clock() -> datetime:
    return datetime.now(UTC)


class Facts:
    """Facts by host. An expired or damaged entry is like none, because the host can be asked again.

    durability="atomic": a power loss may take the newest facts, and never leaves half of them.
    """

    def __init__(self, directory: Path, lifetime: timedelta, now: Clock = clock, **options: Any) -> None:
        self.manager: CheckpointManager[Any] = CheckpointManager(directory, durability="atomic", **options)
        self._lifetime = lifetime
        self._now = now

    def __getitem__(self, host: str) -> Any:
        try:
            checkpoint = self.manager.get_checkpoint(host)
        except CorruptCheckpoint as damaged:
            raise KeyError(host) from damaged
        if self._now() - checkpoint.written > self._lifetime:
            raise KeyError(host)
        return checkpoint.data

    def __setitem__(self, host: str, facts: Any) -> None:
        self.manager.create_checkpoint(host, facts)

    def __iter__(self) -> Iterator[str]:
        for host in self.manager:
            try:
                self[host]
            except KeyError:
                continue
            yield host


def test_facts_are_there_for_the_next_run(tmp_path: Path) -> None:
    facts = Facts(tmp_path, timedelta(days=1))
    facts["web-1"] = {"cores": 8}
    facts.manager.close()
    again = Facts(tmp_path, timedelta(days=1))
    assert (list(again), again["web-1"]) == (["web-1"], {"cores": 8})


def test_expired_facts_are_like_none(tmp_path: Path) -> None:
    facts = Facts(tmp_path, timedelta(days=1), now=lambda: clock() + timedelta(days=2))
    facts["web-1"] = {"cores": 8}
    assert list(facts) == []
    with pytest.raises(KeyError):
        facts["web-1"]


def test_damaged_facts_are_reported_and_gathered_again(tmp_path: Path) -> None:
    facts = Facts(tmp_path, timedelta(days=1))
    facts["web-1"], facts["web-2"] = {"cores": 8}, {"cores": 4}
    facts.manager.close()
    damage.empty(tmp_path, "web-1")
    kinds: list[EventKind] = []
    again = Facts(tmp_path, timedelta(days=1), on_event=lambda event: kinds.append(event.kind))
    assert list(again) == ["web-2"]
    again["web-1"] = {"cores": 8}
    assert sorted(again) == ["web-1", "web-2"]
    assert EventKind.DAMAGE in kinds
