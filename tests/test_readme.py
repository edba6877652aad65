"""The README's examples run, and what it points to is there."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
EXAMPLES = re.findall(r"```python\n(.*?)```", README, flags=re.DOTALL)


@pytest.mark.parametrize("number", range(len(EXAMPLES)))
def test_an_example_runs(number: int, tmp_path: Path) -> None:
    program = tmp_path / "example.py"
    program.write_text(EXAMPLES[number], encoding="utf-8")

    run = subprocess.run([sys.executable, str(program)], capture_output=True, text=True, check=False, timeout=60)

    assert run.returncode == 0, run.stderr


def test_the_first_example_is_as_short_as_it_says_and_prints_what_survived(tmp_path: Path) -> None:
    statements = [line for line in EXAMPLES[0].splitlines() if line.strip()]
    assert len(statements) <= 20

    run = subprocess.run([sys.executable, "-c", EXAMPLES[0]], capture_output=True, text=True, check=True, timeout=60)

    assert run.stdout.startswith("pod-7 Lease(holder='node-a', renewals=1) generation 2")


@pytest.mark.parametrize("target", re.findall(r"\]\(([^)#]+)\)", README))
def test_what_it_links_to_is_there(target: str) -> None:
    assert (ROOT / target).exists()


def test_the_folders_it_draws_are_there() -> None:
    drawing = README[README.index("## Reading the source") :]
    for name in re.findall(r"^ {4,8}([a-z_A-Z]+(?:\.py|\.md|/))", drawing, flags=re.MULTILINE):
        found = [ROOT / folder / name for folder in (".", "checkpointmanager", "tools")]
        assert any(path.exists() for path in found), name


def test_the_top_level_is_what_was_agreed() -> None:
    tracked = subprocess.run(
        ["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=False
    ).stdout.splitlines()
    if not tracked:
        pytest.skip("not a git checkout")

    top = {path.split("/")[0] for path in tracked}

    agreed = {"pyproject.toml", "checkpointmanager", "draState", "tests", "tools", "LICENSE", "README.md"}
    assert {name for name in top if not name.startswith(".")} == agreed
