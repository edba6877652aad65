"""restore and remove: exact bytes under a generation above all others, and nothing they replace is lost."""

from __future__ import annotations

import itertools
import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from checkpoint_verify.commands import change, restore
from checkpoint_verify.commands.restore import put_back
from checkpoint_verify.commands.steps import Step
from checkpointmanager import CheckpointManager, Store
from checkpointmanager.testing import damage

from .claims import make_claims
from .command import called
from .state import CLAIMS, crashed, make, snapshot


def generations(directory: Path) -> dict[str, int]:
    with CheckpointManager(directory, CLAIMS) as manager:
        return {key: one.generation for key, one in manager.load().checkpoints.items()}


def document(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(path.read_bytes())
    return found


def kept(directory: Path) -> list[Path]:
    return sorted((directory / ".quarantine").glob("*.replaced.json"))


def test_one_key_comes_back_above_every_generation_and_the_others_stay(tmp_path: Path) -> None:
    directory = crashed(tmp_path / "claims")
    backup = make(tmp_path / "backup")

    ended = called("restore", "--yes", "-d", directory, "claim-1", backup / "claim-1.json")

    assert (ended.code, ended.lines[0]) == (0, "DONE: 1 restored")
    assert not (directory / ".journal").exists()
    assert generations(directory) == {"claim-0": 2, "claim-1": 3, "claim-3": 1, "ns/new": 1}
    before, after = document(backup / "claim-1.json"), document(directory / "claim-1.json")
    changed = {name for name in before if before[name] != after[name]}
    assert changed == {"checksum", "generation"}
    [replaced] = kept(directory)
    assert document(replaced)["data"]["pods"] == ["newest"]  # what the journal had


def test_into_an_empty_place_the_bytes_are_exact(directory: Path, tmp_path: Path) -> None:
    blob = (directory / "claim-1.json").read_bytes()
    copy = shutil.copy(directory / "claim-1.json", tmp_path / "kept.json.1")
    assert called("remove", "--yes", directory / "claim-1.json").code == 0

    ended = called("restore", "--yes", directory / "claim-1.json", copy)

    assert ended.code == 0
    assert (directory / "claim-1.json").read_bytes() == blob
    again = called("restore", "--yes", directory / "claim-1.json", copy)
    assert again.lines[0] == "GOOD: nothing to do"


def test_a_whole_backup_changes_only_what_it_has(tmp_path: Path) -> None:
    directory, backup = make(tmp_path / "claims"), make(tmp_path / "backup", 2)
    damage.truncate(directory, "claim-1", 50)
    (directory / "claim-0.json").unlink()

    ended = called("restore", "--yes", "-d", directory, backup)

    assert (ended.code, ended.lines[0]) == (0, "DONE: 2 restored")
    assert f"stays: {directory}/claim-3.json: not in the backup" in ended.out
    assert generations(directory) == {"claim-0": 2, "claim-1": 1, "claim-2": 1, "claim-3": 1}


def test_a_damaged_backup_is_repaired_exactly_or_left(directory: Path, tmp_path: Path) -> None:
    backup = make(tmp_path / "backup")
    damage.flip_bit(backup, "claim-1")
    damage.truncate(backup, "claim-2", 70)
    (directory / "claim-1.json").unlink()
    before = (directory / "claim-2.json").read_bytes()

    ended = called("restore", "--yes", "--json", "-d", directory, backup)

    steps = {step["key"]: step for step in ended.document["steps"]}
    assert ended.code == 3
    assert {key: step["action"] for key, step in steps.items()} == {
        "claim-0": "good", "claim-1": "restored", "claim-2": "left", "claim-3": "good",
    }  # fmt: skip
    assert "truncated" in steps["claim-2"]["detail"]
    assert (directory / "claim-2.json").read_bytes() == before
    assert called(directory).code == 0


def test_another_key_another_kind_and_another_program_are_refused(directory: Path, tmp_path: Path) -> None:
    other = make_claims(tmp_path / "other")
    foreign = tmp_path / "foreign"
    foreign.mkdir()
    (foreign / "checkpoint.json").write_text("{}")
    before, theirs = snapshot(directory), snapshot(foreign)

    wrong_key = called("restore", "--yes", directory / "claim-1.json", directory / "claim-2.json")
    shutil.copy(next(other.glob("*.json")), tmp_path / "claim-1.json")
    wrong_kind = called("restore", "--yes", directory / "claim-1.json", tmp_path / "claim-1.json")
    not_ours = called("restore", "--yes", "-d", foreign, "claim-1", directory / "claim-1.json")

    assert (wrong_key.code, wrong_kind.code, not_ours.code) == (3, 3, 2)
    assert "wrong-key" in wrong_key.out
    assert "is not a directory of checkpoints" in not_ours.err
    assert (snapshot(directory), snapshot(foreign)) == (before, theirs)


def test_remove_keeps_the_bytes_and_a_journal_does_not_bring_them_back(tmp_path: Path) -> None:
    directory = crashed(tmp_path / "claims")

    ended = called("remove", "--yes", "-d", directory, "claim-1", "ns%2Fnew", "missing")

    assert (ended.code, ended.lines[0]) == (0, "DONE: 2 removed")
    assert sorted(generations(directory)) == ["claim-0", "claim-3"]
    assert [document(path)["key"] for path in kept(directory)] == ["claim-1", "ns/new"]
    copy = kept(directory)[0]
    assert called("restore", "--yes", "-d", directory, "claim-1", copy).code == 0
    assert document(directory / "claim-1.json")["data"]["pods"] == ["newest"]


@pytest.mark.parametrize(
    "words", [("remove", "claim-1"), ("restore", "claim-1", "{b}/claim-1.json"), ("restore", "{b}")]
)
def test_both_need_the_lock_and_consent(directory: Path, tmp_path: Path, words: tuple[str, ...]) -> None:
    backup = make(tmp_path / "backup")
    os.truncate(directory / "claim-1.json", 60)
    command, *rest = [word.format(b=backup) for word in words]
    with CheckpointManager(directory, CLAIMS, owner="the agent"):
        before = snapshot(directory)
        held = called(command, "--yes", "-d", directory, *rest)
        assert snapshot(directory) == before

    assert held.code == 1  # claim-1 is still damaged
    assert held.lines[0].startswith("NOTHING DONE: the lock is held by 'the agent'")
    before = snapshot(directory)
    assert called(command, "-d", directory, *rest).code == 2  # nobody can answer
    assert snapshot(directory) == before


def test_a_restore_that_is_declined_changes_nothing_and_is_not_good(directory: Path, tmp_path: Path) -> None:
    backup = make(tmp_path / "backup")
    (directory / "claim-1.json").unlink()
    before = snapshot(directory)

    ended = called("restore", "-d", directory, backup, typed="n\n")

    assert (ended.code, ended.lines[-1].partition("] ")[2]) == (3, "Nothing was changed.")
    assert snapshot(directory) == before


def test_an_interrupted_restore_says_what_was_done_and_what_not(
    directory: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    backup = make(tmp_path / "backup")
    for number in range(4):
        (directory / f"claim-{number}.json").unlink()
    calls = itertools.count(1)

    def interrupted(store: Store, step: Step, blob: bytes) -> None:
        if next(calls) == 3:
            raise KeyboardInterrupt
        put_back(store, step, blob)

    monkeypatch.setattr(restore, "put_back", interrupted)
    ended = called("restore", "--yes", "--json", "-d", directory, backup)

    document = ended.document
    assert (ended.code, document["interrupted"]) == (3, True)
    assert [step["action"] for step in document["steps"]] == ["restored", "restored", "left", "left"]
    assert document["steps"][2]["detail"] == "interrupted before it was changed"
    assert sorted(generations(directory)) == ["claim-0", "claim-1"]


def test_a_deleted_checkpoint_that_left_its_previous_generation_is_named_and_can_be_restored(directory: Path) -> None:
    (directory / "claim-0.json").unlink()

    ended = called(directory)
    [line] = [line for line in ended.lines if line.startswith("warning:")]
    restored = called(*line.partition("Next: checkpoint-verify ")[2].split(), "--yes")

    assert "only the previous generation of claim-0 is there" in line
    assert restored.code == 0
    assert generations(directory)["claim-0"] == 2
    assert called("--strict", directory).code == 0


def test_a_run_that_keeps_many_copies_loses_none(tmp_path: Path) -> None:
    directory = make(tmp_path / "claims", 70)  # 64 was the limit that lost some
    for path in directory.glob("claim-*.json"):
        os.truncate(path, 60)
    (directory / ".previous-claim-0").unlink()

    assert called("repair", "--discard", "--all", "--yes", directory).code == 0

    assert len(list((directory / ".quarantine").iterdir())) == 70


def test_a_run_that_needs_more_copies_than_are_kept_says_so_and_stops(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(change, "KEPT", 2)
    for number in range(4):
        os.truncate(directory / f"claim-{number}.json", 60)
    before = snapshot(directory)

    for number, options in ((3, ["--discard"]), (4, ["--discard", "--rollback"])):
        ended = called("repair", *options, "--all", "--yes", directory)

        assert ended.code == 1
        assert ended.lines[0].startswith(f"NOTHING DONE: {number} copies would go to quarantine")
    assert snapshot(directory) == before
