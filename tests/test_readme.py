"""The README's example is short and early, the file that it shows verifies, and CONTRIBUTING's folders exist."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
from xxhash import xxh3_64_hexdigest

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
EXAMPLES = re.findall(r"```python\n(.*?)```", README, flags=re.DOTALL)


def test_the_first_example_is_as_short_as_it_says() -> None:
    assert len([line for line in EXAMPLES[0].splitlines() if line.strip()]) <= 20


def test_the_first_code_comes_within_200_words() -> None:
    assert len(README[: README.index("```python")].split()) <= 200


def test_the_file_that_it_shows_verifies() -> None:
    (shown,) = re.findall(r'^(\{"checksum":.*?\}\})$', README, flags=re.MULTILINE | re.DOTALL)
    line = shown.replace("\n", "").encode() + b"\n"
    assert line[18:34].decode() == xxh3_64_hexdigest(line[36:])


def test_the_folders_it_draws_are_there() -> None:
    contributing = (ROOT / ".github" / "CONTRIBUTING.md").read_text(encoding="utf-8")
    drawing = contributing[contributing.index("## Read the source") : contributing.index("## Run one rung")]
    for name in re.findall(r"^ {4,8}([a-z_A-Z]+(?:\.py|\.md|/))", drawing, flags=re.MULTILINE):
        found = [ROOT / folder / name for folder in (".", "checkpointmanager", "draState", "tools")]
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
