"""The table in README.md names every outage and every test, and nothing that is not there."""

from __future__ import annotations

import ast
import re
from pathlib import Path

FOLDER = Path(__file__).parent
ROWS = [
    [cell.strip() for cell in line.strip("|\n").split("|")]
    for line in (FOLDER / "README.md").read_text("utf-8").splitlines()
    if re.match(r"\| \d+ \|", line)
]
OUT_OF_SCOPE = [13, 14]


def _named(cell: str) -> list[str]:
    """The tests of this folder."""
    return re.findall(r"`(test_\w+)`", cell)


def _elsewhere(cell: str) -> list[tuple[str, str]]:
    """The files and names of tests in other folders."""
    return re.findall(r"`([\w/]+\.py)::(test_\w+)`", cell)


def _tests() -> dict[str, str | None]:
    """Every test of this folder but those of this file, with its docstring."""
    return {
        node.name: ast.get_docstring(node)
        for path in FOLDER.glob("test_*.py")
        if path.name != Path(__file__).name
        for node in ast.parse(path.read_text("utf-8")).body
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")
    }


def test_the_table_has_all_rows_each_with_a_test_or_a_reason() -> None:
    assert [int(row[0]) for row in ROWS] == list(range(1, 49))
    for number, threads, what, tests, remark in ROWS:
        assert threads
        assert what
        proved = _named(tests) + _elsewhere(tests)
        assert bool(proved) != (int(number) in OUT_OF_SCOPE), number
        assert proved or (tests == "out of scope" and remark), number


def test_the_table_names_every_test_once_and_none_that_does_not_exist() -> None:
    named = [name for row in ROWS for name in _named(row[3])]

    assert sorted(named) == sorted(_tests())
    for path, name in [each for row in ROWS for each in _elsewhere(row[3])]:
        assert f"def {name}(" in (FOLDER.parent / path).read_text("utf-8"), name


def test_every_test_is_named_after_a_thread_of_its_row() -> None:
    for row in ROWS:
        for name in _named(row[3]):
            number = re.search(r"_(\d+)_", name)
            assert number, name
            assert f"#{number[1]}" in re.findall(r"#\d+", row[1]), name


def test_every_test_says_in_one_line_what_happened() -> None:
    for name, docstring in _tests().items():
        assert docstring, name
        assert "\n" not in docstring, name
