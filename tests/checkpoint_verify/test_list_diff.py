"""list and diff."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from checkpointmanager.testing import damage

from .claims import make_claims
from .command import called
from .state import make


def test_list_has_a_row_for_every_checkpoint_also_for_damaged_ones(directory: Path) -> None:
    damage.truncate(directory, "claim-2", 90)

    ended = called("list", directory)

    assert ended.code == 1
    assert ended.lines[0].split() == ["key", "kind", "version", "gen", "age", "boot", "size", "state"]
    assert [line.split()[0] for line in ended.lines[1:5]] == [f"claim-{number}" for number in range(4)]
    assert "damaged (truncated)" in ended.lines[3]
    assert ended.lines[1].split()[1:4] == ["ClaimInfo", "3", "2"]


@pytest.mark.parametrize("make_directory", [make_claims, make])  # with subjects, and without
def test_list_reads_each_good_file_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, make_directory: Callable[[Path], Path]
) -> None:
    directory = make_directory(tmp_path / "claims")
    opened: list[str] = []
    really_open = os.open

    def noted(path: str, *words: Any, **options: Any) -> int:
        opened.append(os.path.basename(path))
        return really_open(path, *words, **options)

    monkeypatch.setattr(os, "open", noted)

    rows = called("list", "--json", directory).document["checkpoints"]

    assert all(bool(row["subject"]) is (make_directory is make_claims) for row in rows)
    files = [path.name for path in directory.iterdir() if path.name.endswith(".json") or ".previous-" in path.name]
    assert sorted(name for name in opened if name in files) == sorted(files)


@pytest.mark.parametrize(
    ("words", "keys"),
    [
        (("--sort", "generation", "--reverse"), ["claim-0", "claim-3", "claim-1", "claim-2"]),
        (("--sort", "state"), ["claim-2", "claim-0", "claim-1", "claim-3"]),
        (("--sort", "size"), ["claim-2", "claim-1", "claim-3", "claim-0"]),
        (("--state", "damaged"), ["claim-2"]),
        (("--state", "good", "--key", "*-[01]"), ["claim-0", "claim-1"]),
        (("--kind", "ClaimInfo"), ["claim-0", "claim-1", "claim-3"]),
        (("--boot", "this"), ["claim-0", "claim-1", "claim-3"]),
        (("--boot", "earlier"), []),
        (("--sort", "age"), ["claim-0", "claim-3", "claim-1", "claim-2"]),
    ],
)
def test_list_sorts_and_filters(directory: Path, words: tuple[str, ...], keys: list[str]) -> None:
    damage.truncate(directory, "claim-2", 90)

    rows = called("list", "--json", *words, directory).document["checkpoints"]

    assert sorted(row["key"] for row in rows) == sorted(keys)
    if "age" not in words:
        assert [row["key"] for row in rows] == keys


def test_a_filter_does_not_hide_damage_from_the_exit_code(directory: Path) -> None:
    damage.truncate(directory, "claim-2", 90)

    assert called("list", "--state", "good", directory).code == 1


def test_diff_with_the_previous_generation_goes_path_by_path(directory: Path) -> None:
    ended = called("diff", directory, "claim-0", "--previous")

    assert ended.code == 0
    assert "~ $.generation: 1 → 2" in ended.lines
    assert '+ $.data.pods[1]: "pod-9"' in ended.lines


def test_diff_of_two_keys(directory: Path) -> None:
    document = called("diff", "--json", "-d", directory, "claim-1", "claim-2").document

    assert {"what": "changed", "path": "$.data.name", "before": "claim-1", "after": "claim-2"} in document["changes"]
    assert document["compared"] is True


def test_diff_with_a_damaged_one_says_so_and_compares_nothing(directory: Path) -> None:
    damage.edit_by_hand(directory, "claim-2")

    ended = called("diff", directory, "claim-1", "claim-2")

    assert ended.code == 1
    assert "cannot be compared" in ended.out
