"""The table in README.md names every outage and every test, and nothing that does not exist."""

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
    """The tests of this folder that a cell names."""
    return re.findall(r"(?<!\[)`(test_\w+)`", cell)


def _linked(cell: str) -> list[tuple[str, str]]:
    """The tests elsewhere that a cell names, each with its file."""
    return re.findall(r"\[`(test_\w+)`\]\((\S+)\)", cell)


def _tests_in(path: Path) -> dict[str, str | None]:
    """Every test of a file, with its docstring."""
    functions = [node for node in ast.parse(path.read_text("utf-8")).body if isinstance(node, ast.FunctionDef)]
    return {node.name: ast.get_docstring(node) for node in functions if node.name.startswith("test_")}


def _tests() -> dict[str, str | None]:
    """Every test of this folder but those of this file."""
    paths = [path for path in FOLDER.glob("test_*.py") if path.name != Path(__file__).name]
    return {name: docstring for path in paths for name, docstring in _tests_in(path).items()}


def test_the_table_has_all_rows_each_with_a_test_or_a_reason() -> None:
    assert [int(row[0]) for row in ROWS] == list(range(1, 66))
    for number, threads, what, tests, remark in ROWS:
        assert threads
        assert what
        proved = bool(_named(tests) or _linked(tests))
        assert proved != (int(number) in OUT_OF_SCOPE), number
        assert proved or (tests == "out of scope" and remark), number


def test_the_table_names_every_test_once_and_none_that_does_not_exist() -> None:
    named = [name for row in ROWS for name in _named(row[3])]

    assert sorted(named) == sorted(_tests())


def test_every_test_that_a_row_links_to_exists() -> None:
    linked = [link for row in ROWS for link in _linked(row[3])]

    assert len(linked) >= 100
    assert [name for name, path in linked if name not in _tests_in(FOLDER / path)] == []


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
