"""mypy checks typing_checks.py with everything else; here pyright does, and Python runs it."""

from __future__ import annotations

import asyncio
import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import pytest

from . import typing_checks

ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize(
    "check",
    [
        typing_checks.of_a_dataclass,
        typing_checks.of_a_pair,
        typing_checks.of_plain_types,
        typing_checks.of_unions,
        typing_checks.of_a_cache,
        lambda: asyncio.run(typing_checks.of_an_async_cache()),
        typing_checks.of_anything,
        typing_checks.a_memory_store_is_a_store,
    ],
)
def test_the_examples_run(check: object) -> None:
    assert callable(check)
    check()


def test_pyright_agrees(tmp_path: Path) -> None:
    if importlib.util.find_spec("basedpyright") is None:
        pytest.skip("basedpyright is not installed")
    settings = {
        "include": [str(Path(typing_checks.__file__))],
        "extraPaths": [str(ROOT)],
        "typeCheckingMode": "strict",
        "enableTypeIgnoreComments": False,
        "reportUnnecessaryTypeIgnoreComment": "error",
    }
    (tmp_path / "pyrightconfig.json").write_text(json.dumps(settings))
    command = [sys.executable, "-m", "basedpyright", "--project", str(tmp_path), "--pythonpath", sys.executable]
    run = subprocess.run([*command, "--outputjson"], capture_output=True, text=True, check=False, timeout=500)
    if not run.stdout.lstrip().startswith("{"):
        pytest.skip(f"basedpyright cannot run here: {run.stderr.strip()[-200:]}")
    report = json.loads(run.stdout)

    problems = [
        f"line {found['range']['start']['line'] + 1}: {found['message']}"
        for found in report["generalDiagnostics"]
        if found["severity"] == "error"
    ]
    assert problems == []
    assert report["summary"]["filesAnalyzed"] == 1
