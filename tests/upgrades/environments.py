"""A virtual environment for each release of the example agent. Made without pip, so without a network.

Each has the release's own folder on its path, and the packages that both need from where they are now.
"""

from __future__ import annotations

import json
import os
import subprocess
import venv
from pathlib import Path
from typing import Any

import filelock
import orjson
import xxhash

import checkpointmanager

AGENTS = Path(__file__).with_name("agents")
LIMIT = 60.0  # seconds


class Installed:
    """One release in its environment."""

    def __init__(self, folder: Path, release: str) -> None:
        venv.create(folder, with_pip=False, symlinks=True)
        self._python = folder / "bin" / "python"
        packages = [Path(str(module.__file__)).parents[1] for module in (checkpointmanager, filelock, orjson, xxhash)]
        site = next((folder / "lib").glob("python*/site-packages"))
        (site / "agent.pth").write_text("\n".join(map(str, dict.fromkeys([AGENTS / release, *packages]))) + "\n")

    def start(self, directory: Path, orders: list[list[Any]], *options: str) -> subprocess.Popen[str]:
        """Start one life of the agent; it ends when its orders are done."""
        process = subprocess.Popen(
            [self._python, "-m", "example_agent", directory, *options],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=directory.parent,
            env={name: value for name, value in os.environ.items() if not name.startswith("PYTHON")},
        )
        assert process.stdin
        process.stdin.write(json.dumps(orders))
        process.stdin.close()
        process.stdin = None
        return process

    def run(self, directory: Path, orders: list[list[Any]], *options: str) -> dict[str, Any]:
        return ended(self.start(directory, orders, *options))


def ended(process: subprocess.Popen[str]) -> dict[str, Any]:
    """The output of the agent at its end."""
    out, err = process.communicate(timeout=LIMIT)
    assert process.returncode == 0, err
    said: dict[str, Any] = json.loads(out)
    return said
