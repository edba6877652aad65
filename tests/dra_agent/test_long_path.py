"""A clone may lie deep: tests and operators meet the limit on the path of a socket."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
LENGTH = 200  # characters: nearly twice as long as the path of a socket may be


def test_the_tests_with_sockets_pass_in_a_long_path_with_spaces(tmp_path: Path) -> None:
    deep = tmp_path / "a clone with spaces"
    deep /= "x" * max(1, LENGTH - len(str(deep)) - 1)
    deep.mkdir(parents=True)
    chosen = "server_that_ends or report_is_repeated or after_a_restart_it_answers"
    tests = ["-k", chosen, *(f"test_{name}.py" for name in ("services", "health", "restart"))]
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *tests]

    done = subprocess.run(
        command, cwd=HERE, env={**os.environ, "TMPDIR": str(deep)}, capture_output=True, text=True, check=False
    )

    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-1000:]


@pytest.mark.parametrize("option", ["--plugin-dir", "--registry-dir"])
def test_an_operator_learns_which_folder_is_too_deep_for_its_socket(tmp_path: Path, option: str) -> None:
    (tmp_path / "devices.json").write_text('{"driver": "gpu.example.com", "devices": []}')
    deep = tmp_path / ("x" * 100)
    command = [sys.executable, "-m", "dra_agent", "--node", "n", "--devices", str(tmp_path / "devices.json")]

    done = subprocess.run([*command, option, str(deep)], capture_output=True, text=True, check=False)

    assert done.returncode == 2
    assert str(deep) in done.stderr
    assert f"at most 107 bytes: choose a shorter {option}" in done.stderr
    assert not deep.exists()
