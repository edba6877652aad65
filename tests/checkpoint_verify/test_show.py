"""show: what is in a file, and where a damaged one is damaged."""

from __future__ import annotations

from pathlib import Path

import pytest

from checkpointmanager.testing import damage

from .command import called
from .state import claim


def test_a_good_checkpoint_is_shown_with_header_and_data(directory: Path) -> None:
    ended = called("show", directory / "claim-1.json")

    assert ended.code == 0
    for part in ("GOOD", "ClaimInfo, version 3", "in the current boot", '"name": "claim-1"', '"token": "secret-1"'):
        assert part in ended.out


@pytest.mark.parametrize(
    "words",
    [
        ("{d}/claim-1.json",),
        ("-d", "{d}", "claim-1"),
        ("{d}", "claim-1"),
        ("claim-1", "-d", "{d}"),
        ("-d", "{d}", "claim-1.json"),
    ],
)
def test_a_checkpoint_is_named_by_file_or_by_directory_and_key(directory: Path, words: tuple[str, ...]) -> None:
    ended = called("show", "--json", *(word.format(d=directory) for word in words))

    assert ended.document["data"] == claim(1)


def test_a_key_is_looked_up_in_the_current_directory(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(directory)

    assert called("show", "--json", "claim-1").document["key"] == "claim-1"


def test_previous_shows_the_generation_before(directory: Path) -> None:
    document = called("show", "--json", "--previous", directory, "claim-0").document

    assert (document["header"]["generation"], document["data"]) == (1, claim(0))


def test_raw_gives_the_very_bytes_also_of_a_damaged_file(directory: Path) -> None:
    path = directory / "claim-1.json"
    damage.flip_bit(directory, "claim-1")

    ended = called("show", "--raw", path)

    assert ended.code == 1
    assert ended.out.encode() == path.read_bytes()


def test_a_flipped_bit_is_marked_at_its_offset_in_hex(directory: Path) -> None:
    path = directory / "claim-1.json"
    offset = path.read_bytes().index(b"default")
    damage.flip_bit(directory, "claim-1", offset * 8 + 5)

    lines = called("show", path).lines

    mark = next(number for number, line in enumerate(lines) if "^^ this bit flipped" in line)
    column = lines[mark].index("^^")
    assert lines[mark - 1][column : column + 2] == f"{ord('d') ^ 32:02x}"
    assert f"(offset {offset})" in lines[mark]
    assert '"kind": "ClaimInfo"' in "\n".join(lines)  # as far as it goes


@pytest.mark.parametrize("size", [1, 36, 160, 250])
def test_half_a_file_is_shown_as_far_as_it_goes(directory: Path, size: int) -> None:
    path = directory / "claim-1.json"
    damage.truncate(directory, "claim-1", size)

    ended = called("show", path)

    assert ended.code == 1
    assert f"the file ends here, in the middle of the document (offset {size})" in ended.out
    assert not ended.err


def test_what_was_edited_is_shown_whole_and_the_place_is_said_to_be_unknown(directory: Path) -> None:
    damage.edit_by_hand(directory, "claim-1")

    out = called("show", directory / "claim-1.json").out

    assert '"edited": "by hand"' in out
    assert "the checksum does not show where" in out


def test_commands_for_the_terminal_inside_the_data_are_escaped(directory: Path) -> None:
    path = directory / "claim-1.json"
    path.write_bytes(path.read_bytes()[:-40] + b"\x1b[2J\x9b\xff")

    out = called("show", path).out

    assert "\x1b" not in out
    assert "\x9b" not in out
