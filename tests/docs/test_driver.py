"""The driver's tutorial, followed step by step: files are saved, commands run, and they print what the page shows."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from docs import pages
from draState.plugin.rehearsal import ACTS
from tests.long import LONG

PAGE = "tools/docs/guides/driver.md"


BLOCKS = pages.tokens_of(PAGE)
COMMANDS = [number for number, block in enumerate(BLOCKS) if block.info == "console"]
ALL_ACTS = "python -m draState.plugin.rehearsal nic:Nic | grep -E 'PASS|FAIL'"


@pytest.mark.parametrize("number", COMMANDS)
def test_a_command_of_the_tutorial_prints_what_the_page_shows(number: int, tmp_path: Path) -> None:
    for block in BLOCKS[:number]:
        language, _, name = block.info.partition(" ")
        if language == "python":
            (tmp_path / name).write_text(block.content, encoding="utf-8")
    command, *shown = BLOCKS[number].content.removeprefix("$ ").splitlines()
    if command == ALL_ACTS and not LONG:  # tests/draState/plugin/test_rehearsal.py runs them all on the same driver
        assert shown == [f"PASS  {name}: {act.__doc__}" for name, act in ACTS.items()]
        return
    assert output_of(command, tmp_path) == shown


def test_every_act_is_run() -> None:
    assert [BLOCKS[number].content.startswith(f"$ {ALL_ACTS}\n") for number in COMMANDS].count(True) == 1


def output_of(command: str, folder: Path) -> list[str]:
    """What the command prints, without the driver's log."""
    python = os.path.dirname(sys.executable)
    environment = {
        **os.environ,
        "PATH": os.pathsep.join([python, os.environ["PATH"]]),
        "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
    }
    done = subprocess.run(
        ["bash", "-c", command], cwd=folder, env=environment, capture_output=True, text=True, timeout=500, check=False
    )
    assert done.stderr == ""
    return [line for line in done.stdout.splitlines() if not line.startswith("      | ")]


def test_the_example_is_the_tutorials_last_version_and_has_forty_lines() -> None:
    example = Path(pages.ROOT / "tools/docs/guides/nic.py").read_text(encoding="utf-8")
    assert pages.blocks_of(PAGE, "python nic.py")[-1] == example
    assert len(example.splitlines()) <= 40
