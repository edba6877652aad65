"""The first command of the README runs to its end: its two programs, in the existing environment."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

TOOLS = Path(__file__).parents[1] / "tools"


@pytest.mark.timeout(300)
@pytest.mark.parametrize("program", ["demo_kills.py", "demo_agent.py"])
def test_the_demo_comes_to_its_end(program: str) -> None:
    assert f"python tools/{program}" in (TOOLS / "demo").read_text()

    done = subprocess.run([sys.executable, TOOLS / program], capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
