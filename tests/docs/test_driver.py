"""The driver's tutorial, followed step by step: files are saved, commands run, and they print what the page shows."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from docs import pages

PAGE = "tools/docs/guides/driver.md"


@pytest.mark.timeout(600)
def test_the_tutorial_leads_to_a_driver_that_passes_every_act(tmp_path: Path) -> None:
    shown, printed = [], []
    for block in pages.tokens_of(PAGE):
        language, _, name = block.info.partition(" ")
        if language == "python":
            (tmp_path / name).write_text(block.content, encoding="utf-8")
        elif language == "console":
            command, *lines = block.content.splitlines()
            shown += [command, *lines]
            printed += [command, *output_of(command.removeprefix("$ "), tmp_path)]
    assert printed == shown


def output_of(command: str, folder: Path) -> list[str]:
    """What the command prints, without the driver's log."""
    python = os.path.dirname(sys.executable)
    environment = {
        **os.environ,
        "PATH": os.pathsep.join([python, os.environ["PATH"]]),
        "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
    }
    done = subprocess.run(
        ["bash", "-c", command], cwd=folder, env=environment, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.stderr == ""
    return [line for line in done.stdout.splitlines() if not line.startswith("      | ")]


def test_the_example_is_the_tutorials_last_version_and_has_forty_lines() -> None:
    example = Path(pages.ROOT / "tools/docs/guides/nic.py").read_text(encoding="utf-8")
    assert pages.blocks_of(PAGE, "python nic.py")[-1] == example
    assert len(example.splitlines()) <= 40
