"""What fits on a screen at 3 a.m.: one line per sort of problem, one row per place, and keys that are never broken."""

from __future__ import annotations

from pathlib import Path

import pytest

from checkpointmanager.testing import damage

from .claims import make_claims, uid
from .command import called, rendered
from .state import make


def hurt_many(directory: Path, number: int) -> None:
    for each in range(number):
        damage.truncate(directory, uid(each), 380)


def test_many_files_with_one_reason_are_one_line_with_a_count(tmp_path: Path) -> None:
    claims = make_claims(tmp_path / "claims", 20)
    hurt_many(claims, 18)
    damage.flip_bit(claims, uid(19))

    ended = called(claims)
    problems = [line for line in ended.lines if line.startswith("damaged: ")]

    assert ended.lines[0].startswith("DAMAGED: 19 of 20 checkpoints")
    assert len(problems) == 2
    assert problems[0].startswith(f"damaged: 18 files in {claims}: truncated: such as {uid(0)} (ml/train-0), {uid(1)} ")
    assert problems[0].endswith(f"Next: checkpoint-verify repair --dry-run --all {claims}")
    assert f"{uid(19)}.json: checksum-mismatch" in problems[1]
    assert len([line for line in called("--all", claims).lines if line.startswith("damaged: ")]) == 19
    assert len(called("--json", claims).document["problems"]) == 19
    assert rendered(claims, columns=100).count("→ checkpoint-verify") == 2
    assert rendered("--all", claims, columns=100).count("→ checkpoint-verify") == 19


@pytest.mark.parametrize(("number", "lines"), [(5, 5), (6, 1)])
def test_a_handful_are_listed_one_by_one(tmp_path: Path, number: int, lines: int) -> None:
    claims = make_claims(tmp_path / "claims", 7)
    hurt_many(claims, number)

    assert sum(line.startswith("damaged: ") for line in called(claims).lines) == lines


def test_of_several_directories_one_row_each_and_then_only_what_is_wrong(tmp_path: Path) -> None:
    good, bad, none = make(tmp_path / "good"), make(tmp_path / "bad", 2), tmp_path / "none"
    damage.flip_bit(bad, "claim-1")

    ended = called(good, bad, none)
    rows = [line.split() for line in ended.lines[2:6]]

    assert ended.code == 1
    assert ended.lines[0] == "DAMAGED: 1 of 6 checkpoints, 1 not checked in 3 places"
    assert rows == [
        ["place", "verdict", "files", "wrong", "warnings", "lock"],
        [str(good), "GOOD", "4", "0", "0", "free"],
        [str(bad), "DAMAGED", "2", "1", "0", "free"],
        [str(none), "NO", "SUCH", "PATH", "0", "1", "0", "-"],
    ]
    assert [line.partition(": ")[0] for line in ended.lines[7:]] == ["damaged", "could-not-look"]


@pytest.mark.parametrize("columns", [40, 80, 200])
def test_on_a_narrow_terminal_columns_go_and_no_key_is_ever_broken(tmp_path: Path, columns: int) -> None:
    claims = make_claims(tmp_path / "claims", 2)
    damage.truncate(claims, uid(1), 380)

    listed = rendered("list", claims, columns=columns)
    shown = rendered("show", claims / f"{uid(0)}.json", columns=columns)

    for number in (0, 1):
        [row] = [line for line in listed.splitlines() if line.startswith(uid(number))]
        assert row.split()[0] == uid(number)
        assert "good" in row or "damaged (truncated)" in row
    assert ("not shown, too narrow" in listed) is (columns < 200)
    assert ("devices" in listed.splitlines()[0]) is (columns == 200)
    assert uid(0) in shown


@pytest.mark.parametrize("columns", [40, 80])
def test_no_screen_breaks_a_path_a_key_or_a_command(tmp_path: Path, columns: int) -> None:
    claims = make_claims(tmp_path / ("long-" * 12), 2)
    path = claims / f"{uid(1)}.json"
    damage.truncate(claims, uid(1), 380)

    for words in (("diagnose", path), ("show", path), ("repair", "--dry-run", "--all", claims)):
        assert str(path) in rendered(*words, columns=columns), words
    shown = rendered(claims, columns=columns)
    assert f"  next         checkpoint-verify repair --dry-run --all {claims}\n" in shown
    assert f"  → checkpoint-verify diagnose {path}\n" in shown


def test_columns_go_also_where_there_are_very_many_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import io

    from checkpoint_verify.screens import screen, terminal

    monkeypatch.setattr(screen, "MANY_ROWS", 1)
    monkeypatch.setenv("COLUMNS", "38")
    stream = io.StringIO()

    terminal.Terminal(stream).table(("key", "long"), [("a", "x" * 40), ("b", "y")], (), ("long",))

    assert stream.getvalue() == "key\na\nb\n(not shown, too narrow: long)\n"


@pytest.mark.parametrize("columns", [40, 72])
def test_lines_are_wrapped_at_spaces_under_their_indent(tmp_path: Path, columns: int) -> None:
    claims = make_claims(tmp_path / "claims", 2)
    damage.truncate(claims, uid(1), 380)

    lines = rendered(claims, columns=columns).splitlines()
    start = next(number for number, line in enumerate(lines) if line.startswith("  The end of the file is missing:"))
    evidence = lines[start : next(number for number, line in enumerate(lines) if line.startswith("  holds"))]

    assert len(evidence) > 1
    assert all(line.startswith("  ") and len(line) <= columns for line in evidence)
    assert " ".join(line.strip() for line in evidence).endswith("before its closing brace and newline.")
