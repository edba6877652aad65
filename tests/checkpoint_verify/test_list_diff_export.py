"""list, diff and export."""

from __future__ import annotations

import base64
import stat
import subprocess
from pathlib import Path

import pytest

from checkpointmanager import CheckpointManager
from checkpointmanager.testing import damage

from .command import arguments, called, checkpoint_verify, environment
from .state import claim, snapshot


def test_list_has_a_row_for_every_checkpoint_also_for_damaged_ones(directory: Path) -> None:
    damage.truncate(directory, "claim-2", 90)

    ended = checkpoint_verify("list", directory)

    assert ended.code == 1
    assert ended.lines[0].split() == ["key", "kind", "version", "gen", "age", "boot", "size", "state"]
    assert [line.split()[0] for line in ended.lines[1:5]] == [f"claim-{number}" for number in range(4)]
    assert "damaged (truncated)" in ended.lines[3]
    assert ended.lines[1].split()[1:4] == ["ClaimInfo", "3", "2"]


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
    ended = checkpoint_verify("diff", directory, "claim-0", "--previous")

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


def test_export_has_everything_and_damaged_ones_as_base64_with_their_reason(directory: Path) -> None:
    damage.flip_bit(directory, "claim-2")

    ended = checkpoint_verify("export", directory)

    assert ended.code == 1
    exported = {one["key"]: one for one in ended.document["checkpoints"]}
    assert len(exported) == 4
    assert exported["claim-1"]["data"] == claim(1)
    assert exported["claim-2"]["reason"] == "checksum-mismatch"
    assert base64.b64decode(exported["claim-2"]["base64"]) == (directory / "claim-2.json").read_bytes()
    assert ended.document["directories"][0]["lock"]["state"] == "free"


def test_masked_values_are_nowhere_in_the_export_not_even_in_damaged_bytes(directory: Path) -> None:
    damage.flip_bit(directory, "claim-2")

    masked = called("export", "--mask", "$.data.token", "--mask", "$..pods[*]", directory)
    opened = called("export", "--mask", "$.data.token", "--unmasked-damage", directory)

    assert "secret" not in masked.out
    assert base64.b64encode(b"secret")[:7].decode() not in masked.out
    damaged = next(one for one in masked.document["checkpoints"] if one["key"] == "claim-2")
    assert "base64" not in damaged
    assert damaged["withheld"]
    assert masked.document["checkpoints"][0]["data"]["pods"] == ["(masked)", "(masked)"]
    assert next(one for one in opened.document["checkpoints"] if one["key"] == "claim-2")["base64"]


def test_a_mask_that_hits_nothing_is_warned_about(directory: Path) -> None:
    assert "$.data.tokne matched nothing" in called("export", "--mask", "$.data.tokne", directory).err


@pytest.mark.parametrize(
    ("mask", "left"),
    [
        ("$.data.a.b", {"a": {"b": "(masked)", "c.d": [1, {"b": 2}]}}),
        ('$.data.a["c.d"][0]', {"a": {"b": 1, "c.d": ["(masked)", {"b": 2}]}}),
        ("$..b", {"a": {"b": "(masked)", "c.d": [1, {"b": "(masked)"}]}}),
        ("$.data.*", {"a": "(masked)"}),
        ("$.data.a.*", {"a": {"b": "(masked)", "c.d": "(masked)"}}),
        ('$.data.a["c.d"][*].b', {"a": {"b": 1, "c.d": [1, {"b": "(masked)"}]}}),
        ("$.data.nothing", {"a": {"b": 1, "c.d": [1, {"b": 2}]}}),
    ],
)
def test_masks_reach_every_sort_of_place(tmp_path: Path, mask: str, left: object) -> None:
    with CheckpointManager(tmp_path) as manager:
        manager.create_checkpoint("a", {"a": {"b": 1, "c.d": [1, {"b": 2}]}})

    exported = called("export", "--mask", mask, tmp_path).document["checkpoints"]

    assert [one["data"] for one in exported] == [left]


def test_the_output_file_is_private_and_appears_only_when_complete(directory: Path, tmp_path: Path) -> None:
    target = tmp_path / "bundle.json"

    assert called("export", "-o", target, directory).code == 0
    assert stat.S_IMODE(target.stat().st_mode) == 0o600
    assert called("export", "-o", tmp_path / "none" / "x", directory).code == 3
    assert sorted(path.name for path in tmp_path.iterdir()) == ["bundle.json", "claims"]


def test_export_never_writes_into_the_directory_that_it_reads(directory: Path, tmp_path: Path) -> None:
    before = snapshot(directory)
    (tmp_path / "link").symlink_to(directory)

    for words in (
        ("-o", directory / "bundle.json", directory),
        ("-o", directory / ".quarantine" / "bundle.json", directory),
        ("-o", tmp_path / "link" / "bundle.json", directory),
        ("-o", directory / "bundle.json", tmp_path / "link"),
        ("-o", directory / "claim-1.json", directory / "claim-1.json"),
        ("-o", directory / "bundle.json", directory / "claim-1.json"),
    ):
        ended = called("export", *words)
        assert ended.code == 2
        assert "would be in the directory being exported" in ended.err
    assert snapshot(directory) == before
    assert called("export", "-o", tmp_path / "bundle.json", directory).code == 0


def test_nor_where_the_shell_has_made_the_file_already(directory: Path) -> None:
    with open(directory / "bundle.json", "wb") as output:
        process = subprocess.run(
            arguments("export"), cwd=directory, stdout=output, stderr=subprocess.PIPE, env=environment(), check=False
        )

    assert process.returncode == 2
    assert b"would be in the directory being exported" in process.stderr
    assert (directory / "bundle.json").stat().st_size == 0
