"""What tools/release says before it builds anything."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from releasing import toolbox
from releasing.distributions import Commit

ROOT = Path(__file__).parents[2]


def release(*words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    bash = shutil.which("bash") or "bash"
    return subprocess.run(
        [bash, ROOT / "tools" / "release", *words],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
        timeout=500,
    )


@pytest.fixture
def bare_path(tmp_path: Path) -> str:
    """A PATH that has what the script itself needs, and no tool to build with."""
    (tmp_path / "dirname").symlink_to(shutil.which("dirname") or "")
    return str(tmp_path)


def test_without_tools_it_names_the_packages_to_install_and_builds_nothing(bare_path: str) -> None:
    dist = ROOT / "dist"
    before = dist.stat().st_mtime_ns if dist.exists() else None

    ended = release(PYTHON=sys.executable, PATH=bare_path)

    assert ended.returncode == 2
    assert "tools/release: the program patchelf is missing" in ended.stderr
    assert "tools/release: the program objdump is missing" in ended.stderr
    (command,) = [line for line in ended.stderr.splitlines() if "apt-get install" in line]
    assert {"binutils", "git", "patchelf"} <= set(command.replace(";", "").split())
    assert before == (dist.stat().st_mtime_ns if dist.exists() else None)


def test_without_a_python_it_names_the_packages_to_install() -> None:
    ended = release(PYTHON="/nothing/python3")

    assert ended.returncode == 2
    assert "apt-get install python3 python3-venv" in ended.stderr


def test_a_python_that_staticx_would_refuse_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(toolbox, "_has_runpath", lambda _: True)
    monkeypatch.setattr(shutil, "which", lambda name: f"/usr/bin/{name}")

    lacking = toolbox.missing()

    assert toolbox.Missing("a Python without a RUNPATH, which staticx refuses "
                           f"({sys.executable} has one)", "python3") in lacking  # fmt: skip
    assert "without PYTHON set" in toolbox.advice(lacking)


def test_only_what_is_committed_is_released(tmp_path: Path) -> None:
    clone = tmp_path / "clone"
    clone.mkdir()
    (clone / "committed").write_text("as committed")
    for words in (["init", "-q"], ["add", "."], ["commit", "-q", "-m", "one", "--date", "@1700000000 +0000"]):
        names = {f"GIT_{who}_{what}": "x" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
        environment = {**os.environ, **names, "GIT_COMMITTER_DATE": "@1700000000 +0000"}
        subprocess.run(["git", *words], cwd=clone, env=environment, check=True)
    clean = Commit.last(clone)
    (clone / "committed").write_text("as changed since")
    (clone / "secret").write_text("never added")
    dirty = Commit.last(clone)

    exported = dirty.export(tmp_path / "export")

    assert (clean.epoch, clean.differs, dirty.differs) == (1_700_000_000, False, True)
    assert [(path.name, path.read_text()) for path in exported.iterdir()] == [("committed", "as committed")]
