"""diagnose: each way a file is hurt is recognised, with its evidence and the right command."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import time
from pathlib import Path
from typing import Any

import pytest

from checkpointmanager.testing import damage

from .command import NOBODY, called
from .state import claim


def diagnosis(path: Path) -> dict[str, Any]:
    document: dict[str, Any] = called("diagnose", "--json", path).document
    return document


@pytest.mark.parametrize("byte", [0, 5, 20, 36, 60, 150, -3, -2, -1])
@pytest.mark.parametrize("bit", [0, 3, 7])
def test_a_flipped_bit_is_found_wherever_it_is(directory: Path, byte: int, bit: int) -> None:
    path = directory / "claim-1.json"
    offset = byte % path.stat().st_size
    damage.flip_bit(directory, "claim-1", byte * 8 + bit)

    found = diagnosis(path)

    assert found["cause"] == "A single bit flipped, in memory or on the disk."
    assert found["certainty"] == "proved"
    assert found["evidence"][0].startswith(f"Byte {offset}, bit {bit}: ")
    assert found["place"]["offset"] == offset
    assert found["remedies"][-1]["commands"] == [f"checkpoint-verify repair {shlex.quote(str(path))}"]


@pytest.mark.parametrize(
    ("blob", "cause", "evidence"),
    [
        (b"", "emptied the file", "no content"),
        (b"\0" * 4096, "lost power", "All 4096 bytes are NUL"),
        (b"G" * 4096 + b"\0" * 904, "lost power", "exactly at a block boundary (1 × 4096 bytes)"),
        (b"G" * 100 + b"\0" * 104, "lost power", "NUL bytes from offset 100 to the end at 204"),
        (b"G" * 4096, "lost power, or the disk was full", "exactly at a block boundary (1 × 4096 bytes)"),
        (b"G" * 1536, "lost power, or the disk was full", "exactly at a block boundary (3 × 512 bytes)"),
        (b"G" * 1537, "was interrupted", "ends after 1537 bytes"),
        (b"G" * 512 + b"\0" * 512 + b"G" * 100 + b"}\n", "block of the disk was lost", "512 NUL bytes at offset 512"),
        (b"<html>not here</html>}\n", "Something else was written over", "No part of a checkpoint's header"),
    ],
    ids=range(9),
)
def test_what_power_loss_full_disks_and_other_programs_leave(
    tmp_path: Path, blob: bytes, cause: str, evidence: str
) -> None:
    # G means the good bytes of a large checkpoint, up to their end.
    good = _large_checkpoint(tmp_path / "claims")
    path = tmp_path / "claims" / "large.json"
    filled = bytes(good[place] if byte == ord("G") else byte for place, byte in enumerate(blob))
    path.write_bytes(filled)

    found = diagnosis(path)

    assert cause in found["cause"]
    assert any(evidence in sentence for sentence in found["evidence"])
    assert found["certainty"] == "likely"


def _large_checkpoint(directory: Path) -> bytes:
    from checkpointmanager import CheckpointManager

    with CheckpointManager(directory) as manager:
        manager.create_checkpoint("large", {"filler": "x" * 9000})
    return (directory / "large.json").read_bytes()


def test_what_can_still_be_read_of_a_damaged_checkpoint_is_shown_and_marked(directory: Path) -> None:
    path = directory / "claim-1.json"
    path.write_bytes(path.read_bytes().replace(b'"generation":1', b'"generation":7'))

    document, screen = diagnosis(path), called("diagnose", path).out

    assert document["unverified_data"] == claim(1)
    assert "Can be read    but nothing vouches for it" in screen
    assert '"token": "secret-1"' in screen
    damage.flip_bit(directory, "claim-2")
    assert diagnosis(directory / "claim-2.json")["unverified_data"] is None  # its repair is exact
    damage.truncate(directory, "claim-3", 60)
    assert diagnosis(directory / "claim-3.json")["unverified_data"] is None


def test_an_edit_by_hand_is_distinguished_from_rot_also_by_the_time_of_the_file(directory: Path) -> None:
    path = directory / "claim-1.json"
    damage.edit_by_hand(directory, "claim-1")
    os.utime(path, (time.time() + 3600, time.time() + 3600))

    found = diagnosis(path)

    assert found["cause"].startswith("The file was edited")
    assert any("whole JSON document" in sentence for sentence in found["evidence"])
    assert any(
        "modified 1 h after" in sentence or "modified 59 min after" in sentence for sentence in found["evidence"]
    )


@pytest.mark.parametrize("layout", [{"indent": 2}, {"indent": 2, "ensure_ascii": False}], ids=["json.tool", "jq"])
def test_a_file_that_was_only_reformatted_is_repaired_exactly(directory: Path, layout: dict[str, Any]) -> None:
    path = directory / "claim-0.json"  # there is a previous generation, which must not be what is offered
    written = path.read_bytes()
    path.write_text(json.dumps(json.loads(written), **layout) + "\n")

    found = diagnosis(path)
    ended = called("repair", "--all", "--yes", directory)

    assert found["cause"].startswith("The file was reformatted")
    assert (found["certainty"], found["repairable"]) == ("proved", True)
    assert [remedy["commands"] for remedy in found["remedies"]] == [[f"checkpoint-verify repair {path}"]]
    assert ended.lines[0] == "DONE: 1 repaired"
    assert path.read_bytes() == written


def test_a_copy_from_another_key_is_named_and_given_its_name_back_only_if_that_is_free(directory: Path) -> None:
    shutil.copy(directory / "claim-1.json", directory / "claim-2.json")

    there = diagnosis(directory / "claim-2.json")
    (directory / "claim-1.json").unlink()
    gone = diagnosis(directory / "claim-2.json")

    assert there["cause"] == gone["cause"] == "The file was copied or renamed from another key."
    assert "of key claim-1" in there["evidence"][0]
    assert not any("mv -n" in command for remedy in there["remedies"] for command in remedy["commands"])
    assert any("mv -n" in command for remedy in gone["remedies"] for command in remedy["commands"])


def test_bytes_appended_are_cut_off_exactly(directory: Path) -> None:
    path = directory / "claim-1.json"
    path.write_bytes(path.read_bytes() + b"garbage")

    found = diagnosis(path)

    assert found["cause"] == "Bytes were appended to a whole checkpoint."
    assert found["repairable"] is True


def test_a_newer_program_s_file_is_not_damaged(directory: Path) -> None:
    (directory / "claim-1.json").write_bytes(b'{"checksum":"blake3:' + b"ab" * 32 + b'","format":3}\n')

    ended = called("diagnose", directory / "claim-1.json")

    assert ended.code == 0
    assert "A newer program wrote this file. It is not damaged." in ended.out
    assert "Do not delete the file" in ended.out


def test_with_a_previous_generation_rollback_is_offered_and_what_is_lost_is_said(directory: Path) -> None:
    damage.truncate(directory, "claim-0", 80)

    out = called("diagnose", directory, "claim-0").out

    assert "Go back to generation 1" in out
    assert f"checkpoint-verify repair --rollback {shlex.quote(f'{directory}/claim-0.json')}" in out


def test_a_running_agent_is_to_be_stopped_first(directory: Path) -> None:
    from checkpointmanager import CheckpointManager

    damage.truncate(directory, "claim-1", 80)
    with CheckpointManager(directory, owner="the agent"):
        ended = called("diagnose", directory, "claim-1")

    assert "Stop the agent first; the lock is held by 'the agent'" in ended.out


def test_for_a_missing_key_it_suggests_the_list(directory: Path) -> None:
    ended = called("diagnose", directory, "missing")

    assert ended.code == 3
    assert f"1. Check the path: there is no such file.\n     checkpoint-verify list {directory}\n" in ended.out


def test_a_file_without_the_right_to_read_it_comes_with_the_command_that_gives_it(agents_directory: Path) -> None:
    path = agents_directory / "claim-1.json"
    path.chmod(0)

    ended = called("diagnose", path, user=NOBODY)

    assert ended.code == 3
    assert "1. Run this as root, or as the agent's user.\n" in ended.out
    assert f"\n     chmod u+r {path}\n" in ended.out


def test_a_directory_offers_its_damaged_keys_and_each_can_be_pasted(directory: Path) -> None:
    damage.flip_bit(directory, "claim-1")
    damage.truncate(directory, "claim-2", 60)

    ended = called("diagnose", directory)
    document = called("diagnose", "--json", directory).document
    pasted = [called(*shlex.split(line)[1:]) for line in ended.lines if " diagnose " in line]

    assert ended.code == 1
    assert ended.lines[0] == f"2 damaged files in {directory}; choose one:"
    assert [line for line in ended.lines if line.startswith("  claim")] == [
        "  claim-1: checksum-mismatch",
        "  claim-2: truncated",
    ]
    assert [one.lines[0].rpartition("/")[2] for one in pasted] == [
        "claim-1.json (checksum-mismatch)",
        "claim-2.json (truncated)",
    ]
    assert [choice["key"] for choice in document["choices"]] == ["claim-1", "claim-2"]


def test_a_good_directory_offers_nothing(directory: Path) -> None:
    assert called("diagnose", directory).lines == [f"0 damaged files in {directory}"]
