"""What is left out of the one file is needed by no command, on a terminal or off it. Checked without building it."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

from checkpointmanager import CheckpointManager
from checkpointmanager.testing import damage
from releasing import onefile

PROGRAM = """
import importlib.abc, json, os, sys
unused, runs = json.loads(sys.argv[1])
class LeftOut(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name in unused:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, LeftOut())
for name in unused:
    sys.modules.pop(name, None)
from checkpoint_verify.cli import main
codes = [main(words) for words in runs]
os.write(2, json.dumps(codes).encode())
"""


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    state = tmp_path / "claims"
    with CheckpointManager(state) as manager:
        for number in range(4):
            manager.create_checkpoint(f"claim-{number}", {"number": number})
    damage.flip_bit(state, "claim-1")
    return state


@pytest.mark.parametrize("on_terminal", [True, False])
def test_every_command_runs_without_what_is_left_out(directory: Path, on_terminal: bool) -> None:
    where = str(directory)
    runs = [
        [where], ["--json", where], ["list", where], ["show", where, "claim-0"], ["show", where, "claim-1"],
        ["diff", where, "claim-0", "claim-2"], ["diagnose", where, "claim-1"], ["bundle", where, f"{where}.tar"],
        ["list", f"{where}.tar"], ["restore", "--yes", where + "/claim-0.json", f"{where}.tar/claim-0.json"],
        ["repair", "--dry-run", "--all", where], ["repair", "--yes", "--all", where],
        ["--prometheus", f"{where}.prom", where], ["--print-completion", "bash"], ["/nothing"],
    ]  # fmt: skip

    errors, output = run_all(runs, on_terminal)

    *codes, of_nothing = json.loads(errors)  # no complaint before it
    assert set(codes) == {0, 1}, "a verdict each"
    assert of_nothing == 3
    assert ("\x1b[" in output) == on_terminal, "rich is not left out"


def run_all(runs: list[list[str]], on_terminal: bool) -> tuple[str, str]:
    """The stderr and stdout of a process that runs them all."""
    near, far = pty.openpty() if on_terminal else os.pipe()
    environment = {name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "FORCE_COLOR")}
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, json.dumps([onefile.UNUSED, runs])],
        env={**environment, "TERM": "xterm-256color", "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        stdin=subprocess.DEVNULL,
        stdout=far,
        stderr=subprocess.PIPE,
        text=True,
    )
    os.close(far)
    output = b""
    try:
        while chunk := os.read(near, 1 << 16):
            output += chunk
    except OSError:
        pass  # how a terminal reports that its other end is closed
    os.close(near)
    errors = process.communicate(timeout=500)[1]
    return errors, output.decode()
