"""The first command of the README runs to its end: its two programs with few kills, in the existing environment."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.long import times

TOOLS = Path(__file__).parents[1] / "tools"


@pytest.mark.parametrize(("program", "kills"), [("demo_kills", times(30, 300)), ("demo_agent", times(2, 8))])
def test_the_demo_comes_to_its_end(program: str, kills: int) -> None:
    assert f"python tools/{program}.py" in (TOOLS / "demo").read_text()
    shortened = f"import {program}; {program}.KILLS = {kills}; {program}.main()"

    done = subprocess.run([sys.executable, "-c", shortened], cwd=TOOLS, capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
