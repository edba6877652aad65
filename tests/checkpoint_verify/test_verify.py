"""checkpoint-verify PATH: the verdict, one line per problem, the summary."""

from __future__ import annotations

import os
import shlex
import shutil
from pathlib import Path

import pytest

from checkpointmanager import CheckpointManager
from checkpointmanager.testing import damage

from .command import called
from .state import make, reseal, snapshot


def test_a_good_directory_is_good_and_stays_untouched(directory: Path) -> None:
    before = snapshot(directory)

    ended = called(directory)

    assert ended.code == 0
    assert ended.lines[0].startswith("GOOD: 4 checkpoints in ")
    assert snapshot(directory) == before
    assert not ended.err


def test_the_summary_shows_counts_kinds_generations_boots_and_the_lock(directory: Path) -> None:
    out = called(directory).out

    for part in (
        "4 good",
        "ClaimInfo v3: 4",
        "1 to 2",
        "4 from this one",
        "1 kept for a rollback",
        "free; last held by",
    ):
        assert part in out


def test_each_damaged_file_is_one_line_with_reason_meaning_and_next_step(directory: Path) -> None:
    damage.flip_bit(directory, "claim-1")
    damage.truncate(directory, "claim-2", 100)

    ended = called(directory)

    assert ended.code == 1
    assert ended.lines[0] == f"DAMAGED: 2 of 4 checkpoints in {directory}"[:80] or len(ended.lines[0]) <= 80
    problems = [line for line in ended.lines if line.startswith("damaged: ")]
    assert len(problems) == 2
    assert "claim-1.json: checksum-mismatch: " in problems[0]
    assert "Bytes were changed after the file was written" in problems[0]
    assert problems[0].endswith(f"Next: checkpoint-verify diagnose {shlex.quote(f'{directory}/claim-1.json')}")
    assert "claim-2.json: truncated: " in problems[1]


@pytest.mark.parametrize("length", [1, 60, 200])
def test_the_verdict_fits_80_characters_however_long_the_path(tmp_path: Path, length: int) -> None:
    directory = make(tmp_path / ("d" * length))
    damage.flip_bit(directory, "claim-1")

    assert len(called(directory).lines[0]) <= 80
    assert len(called(directory / "claim-1.json").lines[0]) <= 80
    assert len(called(directory / "claim-2.json").lines[0]) <= 80


def test_damage_of_every_sort_has_the_library_s_word(directory: Path) -> None:
    make(directory, 12)
    good = (directory / "claim-0.json").read_bytes()
    hurt = {
        "claim-1": ("empty", b""),
        "claim-2": ("nul-filled", b"\0" * 4096),
        "claim-3": ("nul-filled", good[:100] + b"\0" * 100),
        "claim-4": ("truncated", good[:-30]),
        "claim-5": ("trailing-bytes", (directory / "claim-5.json").read_bytes() + b"more"),
        "claim-6": ("checksum-mismatch", good.replace(b"default", b"dungeon")),
        "claim-7": ("wrong-key", good),
        "claim-8": ("checksum-mismatch", b"x" * 300 + b"}\n"),
    }
    for key, (_, blob) in hurt.items():
        (directory / f"{key}.json").write_bytes(blob)
    (directory / "claim-9.json").unlink()
    (directory / "claim-9.json").symlink_to("claim-0.json")

    document = called("--json", directory).document

    found = {problem["key"]: problem["reason"] for problem in document["problems"]}
    assert found == {key: reason for key, (reason, _) in hurt.items()} | {"claim-9": "not-a-file"}
    assert document["paths"][0]["states"]["good"] == 3


def test_a_right_checksum_over_bytes_that_are_not_json_is_damage(directory: Path) -> None:
    reseal(directory / "claim-1.json", b'"data":{', b'"data":<')

    ended = called(directory)

    assert ended.code == 1
    assert "claim-1.json: not-json: " in ended.out


def test_leftover_temp_files_a_torn_previous_and_an_orphan_are_warnings_and_strict_makes_them_damage(
    directory: Path,
) -> None:
    (directory / ".tmp-dead-1").write_bytes(b"half")
    os.truncate(directory / ".previous-claim-0", 50)
    (directory / "claim-1.json").rename(directory / ".previous-claim-1")

    ended = called(directory)
    strict = called("--strict", directory)

    assert (ended.code, strict.code) == (0, 1)
    assert ended.lines[0].startswith("GOOD, with 3 warnings: 3 checkpoints")
    assert strict.lines[0].startswith("NOT GOOD: 3 warnings (--strict)")
    assert {line.split(": ")[2] for line in ended.lines if line.startswith("warning")} == {
        "temp-files",
        "truncated",
        "orphan",
    }


def test_a_newer_format_is_not_damage_but_not_usable_either(directory: Path) -> None:
    reseal(directory / "claim-1.json", b'"format":1', b'"format":2')
    (directory / "claim-2.json").write_bytes(b'{"checksum":"blake3:' + b"ab" * 32 + b'","format":3}\n')

    ended = called(directory)

    assert ended.code == 1
    assert ended.lines[0].startswith("TOO NEW: 2 of 4 checkpoints in ")
    assert ended.out.count("A newer program wrote it: it is not damaged") == 2
    assert called("--json", directory).document["verdict"] == "not-usable"


def test_quarantined_copies_are_counted_and_not_judged(directory: Path) -> None:
    (directory / ".quarantine").mkdir()
    (directory / ".quarantine" / "claim-1.20260101T000000000000Z.empty.json").write_bytes(b"")

    ended = called(directory)

    assert ended.code == 0
    assert "quarantined  1 copy" in ended.out


def test_quiet_prints_nothing_and_the_exit_code_is_the_verdict(directory: Path) -> None:
    assert (called("--quiet", directory).out, called("-q", directory).code) == ("", 0)
    damage.flip_bit(directory, "claim-1")
    assert (called("--quiet", directory).out, called("-q", directory).code) == ("", 1)


def test_a_path_that_holds_nothing_is_not_good_and_what_was_looked_for_is_named(tmp_path: Path) -> None:
    (tmp_path / "package.json").write_text('{"name": "another program\'s"}')

    ended = called(tmp_path)

    assert ended.code == 3
    assert ended.lines[0].startswith("NOTHING FOUND: no checkpoints, no kubelet state files in ")
    assert (
        "no <key>.json of a checkpoint, no .lock, none of kubelet's dra_manager_state, cpu_manager_state" in ended.out
    )
    assert called("--json", tmp_path).document["verdict"] == "nothing-found"


def test_an_agent_that_has_stored_nothing_yet_is_good(tmp_path: Path) -> None:
    with CheckpointManager(tmp_path / "claims"):
        pass

    assert called("--strict", tmp_path / "claims").lines[0].startswith("GOOD: 0 checkpoints")


def test_in_a_directory_without_a_lock_file_a_foreign_document_beside_checkpoints_is_damage(directory: Path) -> None:
    for name in (".lock", ".previous-claim-0"):
        (directory / name).unlink()
    (directory / "claim-2.json").write_text('{"a": 1}')

    assert called(directory).code == 1


def test_other_folders_are_not_entered(directory: Path) -> None:
    (directory / "folder").mkdir()
    (directory / "folder" / "x.json").write_bytes(b"")

    assert called("--strict", directory).code == 0


def test_two_kinds_in_one_directory_are_a_warning(directory: Path) -> None:
    reseal(directory / "claim-1.json", b"ClaimInfo", b"PodInfo")

    ended = called(directory)

    assert ended.code == 0
    assert "kinds ClaimInfo, PodInfo" in ended.out


def test_a_checkpoint_under_a_name_that_is_no_key_s_is_judged_by_itself(directory: Path, tmp_path: Path) -> None:
    copy = tmp_path / "saved-for-later"
    shutil.copy(directory / "claim-1.json", copy)

    assert called(copy).code == 0
    assert called(directory / ".previous-claim-0").code == 0
    os.rename(copy, tmp_path / "other.json")
    assert "wrong-key" in called(tmp_path / "other.json").out


def test_a_checkpoint_that_is_too_large_to_parse_is_verified_by_its_checksum(tmp_path: Path) -> None:
    with CheckpointManager(tmp_path / "large") as manager:
        manager.create_checkpoint("a", "x" * (3 << 20))
        manager.create_checkpoint("b", "x" * (3 << 20))
    damage.flip_bit(tmp_path / "large", "b", (2 << 20) * 8)

    document = called("--json", tmp_path / "large").document

    assert [problem["key"] for problem in document["problems"]] == ["b"]
    assert document["paths"][0]["states"]["good"] == 1
