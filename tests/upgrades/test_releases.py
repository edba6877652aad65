"""Two releases of one agent, each installed in its own environment, take turns on one directory."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from ..long import times
from .environments import Installed, ended

ROUNDS = times(10, 200)
ORDERS_A_LIFE = 8
RENEWALS = times(20, 500)


@pytest.fixture(scope="module")
def old(tmp_path_factory: pytest.TempPathFactory) -> Installed:
    return Installed(tmp_path_factory.mktemp("old"), "old")


@pytest.fixture(scope="module")
def new(tmp_path_factory: pytest.TempPathFactory) -> Installed:
    return Installed(tmp_path_factory.mktemp("new"), "new")


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return tmp_path / "leases"


def _raw(directory: Path) -> dict[str, bytes]:
    """The files as they are, whichever fields a release knows."""
    return {path.name: path.read_bytes() for path in directory.glob("*.json")}


class Model:
    """What each lease must be, in the terms of release 2; `None` where release 2 has not seen it yet."""

    def __init__(self) -> None:
        self.leases: dict[str, dict[str, Any]] = {}
        self._made = 0

    def orders(self, dice: random.Random, release: str) -> list[list[Any]]:
        return [self._order(dice, release) for _ in range(ORDERS_A_LIFE)]

    def _order(self, dice: random.Random, release: str) -> list[Any]:
        verbs = ["create", "renew", "use", "add", "remove"] + ["tag"] * 3 * (release == "new")
        verb = dice.choice(verbs) if len(self.leases) > 2 else "create"
        if verb == "create":
            self._made += 1
            key = f"lease-{self._made}"
            self.leases[key] = self._created(release)
            return [verb, key]
        key = dice.choice(sorted(self.leases))
        lease = self.leases[key]
        if release == "new" and verb != "remove":
            self._migrate(lease)
        if verb == "remove":
            del self.leases[key]
        elif verb == "renew":
            lease["seconds"] += 1
        elif verb == "use":
            for device in lease["devices"]:
                device["uses"] += 1
        elif verb == "add":
            name = f"device-{len(lease['devices'])}"
            lease["devices"].insert(
                0, {"name": name, "uses": 0, "numa": len(lease["devices"]) if release == "new" else 0}
            )
            return [verb, key, name]
        else:
            tag = f"tag-{len(lease['tags'])}"
            lease["tags"].append(tag)
            lease["place"]["racks"][tag] = len(lease["tags"])
            return [verb, key, tag]
        return [verb, key]

    def _created(self, release: str) -> dict[str, Any]:
        lease: dict[str, Any] = {"holder": "release 1.0", "seconds": 60}
        if release == "old":
            return lease | {"devices": [{"name": "first", "uses": 0, "numa": 0}], "tags": None, "place": None}
        devices = [{"name": "first", "uses": 0, "numa": 1}]
        place = {"region": "there", "racks": {"r1": 1}}
        return lease | {"holder": "release 2.0", "devices": devices, "tags": [], "place": place}

    def _migrate(self, lease: dict[str, Any]) -> None:
        if lease["tags"] is None:
            lease |= {"tags": [], "place": {"region": "here", "racks": {}}}

    def as_seen_by(self, release: str) -> dict[str, Any]:
        seen = {}
        for key, lease in self.leases.items():
            if release == "old":
                devices = [{"name": device["name"], "uses": device["uses"]} for device in lease["devices"]]
                seen[key] = {"holder": lease["holder"], "seconds": lease["seconds"], "devices": devices}
            else:
                copy = dict(lease)
                self._migrate(copy)
                seen[key] = copy
        return seen


def _without_carriers(held: dict[str, Any]) -> dict[str, Any]:
    """An agent also prints the fields it keeps for the other release; only those it knows count."""
    for lease in held.values():
        for device in lease["devices"]:
            del device["unknown"]
    return held


@pytest.mark.parametrize("seed", range(times(1, 10)))
def test_releases_that_take_turns_lose_nothing_of_each_other(
    old: Installed, new: Installed, directory: Path, seed: int
) -> None:
    dice, model = random.Random(seed), Model()
    for turn in range(ROUNDS):
        release, agent = (("old", old), ("new", new))[turn % 2]

        said = agent.run(directory, model.orders(dice, release))

        assert said["version"] == {"old": "1.0", "new": "2.0"}[release]
        assert said["problems"] == []
        assert _without_carriers(said["held"]) == model.as_seen_by(release)
    said = new.run(directory, [])
    assert _without_carriers(said["held"]) == model.as_seen_by("new")
    assert any(lease["tags"] for lease in said["held"].values())


def test_the_old_release_only_looking_changes_no_byte(old: Installed, new: Installed, directory: Path) -> None:
    new.run(directory, [["create", "a"], ["tag", "a", "blue"]])
    before = _raw(directory)
    assert before

    assert old.run(directory, [])["held"].keys() == {"a"}

    assert _raw(directory) == before


def test_both_releases_at_once_during_a_rolling_update_lose_no_count_and_no_field(
    old: Installed, new: Installed, directory: Path
) -> None:
    new.run(directory, [["create", "a"], ["tag", "a", "blue"]])

    both = [agent.start(directory, [["renew", "a", RENEWALS]], "--sharing") for agent in (old, new, old)]
    for process in both:
        ended(process)

    (lease,) = _without_carriers(new.run(directory, [])["held"]).values()
    assert lease["seconds"] == 60 + 3 * RENEWALS
    assert lease["tags"] == ["blue"]
    assert lease["place"] == {"region": "there", "racks": {"r1": 1, "blue": 1}}
    assert lease["devices"] == [{"name": "first", "uses": 0, "numa": 1}]
