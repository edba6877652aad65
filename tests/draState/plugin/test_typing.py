"""mypy checks these drivers with everything else; here pyright does, as strictly as it can."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]


@pytest.mark.skipif(importlib.util.find_spec("basedpyright") is None, reason="needs basedpyright")
def test_pyright_accepts_drivers_with_functions_and_with_coroutines(tmp_path: Path) -> None:
    settings = {
        "include": [str(Path(__file__).with_name("drivers.py")), str(ROOT / "tools/docs/guides/nic.py")],
        "extraPaths": [str(ROOT)],
        "typeCheckingMode": "strict",
    }
    (tmp_path / "pyrightconfig.json").write_text(json.dumps(settings))
    command = [sys.executable, "-m", "basedpyright", "--project", str(tmp_path), "--pythonpath", sys.executable]
    run = subprocess.run([*command, "--outputjson"], capture_output=True, text=True, check=False, timeout=500)
    if not run.stdout.lstrip().startswith("{"):
        pytest.skip(f"basedpyright cannot run here: {run.stderr.strip()[-200:]}")
    report = json.loads(run.stdout)
    errors = [found for found in report["generalDiagnostics"] if found["severity"] == "error"]
    assert [f"line {found['range']['start']['line'] + 1}: {found['message']}" for found in errors] == []
    assert report["summary"]["filesAnalyzed"] == 2
