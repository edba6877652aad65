"""The README's agent runs as it stands, and the modules that the README sends its readers to are there."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import draState

PACKAGE = Path(draState.__file__).parent
README = (PACKAGE / "README.md").read_text(encoding="utf-8")


AGENT, DRIVER, OBJECTS, HEALTH = re.findall(r"```python\n(.*?)```", README, re.DOTALL)


def output_of(program: str, folder: Path) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(PACKAGE.parent)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.stderr == ""
    return done.stdout.splitlines()


def test_the_agent_of_the_readme_survives_a_restart(tmp_path: Path) -> None:
    assert output_of(AGENT, tmp_path) == [
        "devices: nic.example.com/nic=eth1",
        "after a restart: pod-7 {'mtu': 9000}",
        "gone: pod-7 0",
    ]
    assert list(tmp_path.glob("state/*/[!.]*")) == []


def test_the_driver_of_the_readme_sets_up_and_tears_down(tmp_path: Path) -> None:
    assert output_of(DRIVER, tmp_path) == ["set up: nic.example.com/nic=eth1", "torn down, vlan 7", "error: none"]


def test_the_api_objects_of_the_readme_are_read(tmp_path: Path) -> None:
    assert output_of(OBJECTS, tmp_path) == [
        "needs: trainer-gpu-x7k2p",
        "main uses gpu of gpu-0 for gpu",
        "refused: claim ml/trainer-gpu-x7k2p (UID 0c9f) was not created for pod ml/trainer, which does not own it",
    ]


def test_the_device_of_the_readme_is_unhealthy_until_it_is_forgotten(tmp_path: Path) -> None:
    assert output_of(HEALTH, tmp_path) == [
        "gpu-0 is Healthy for pod-7",
        "gpu-0 is Unhealthy for pod-7",
        "after a restart: ECC errors",
        "gpu-0 is Unknown for pod-7",
    ]


def test_the_programs_of_the_readme_are_short() -> None:
    for program in (AGENT, DRIVER, OBJECTS, HEALTH):
        assert len([line for line in program.splitlines() if line.strip()]) <= 30


def test_every_module_that_is_named_is_there() -> None:
    named = set(re.findall(r"`([\w/]+\.py)`", README))

    assert named >= {"_dramanager.py", "_claimcache.py", "_kubelet/statefile.py"}
    assert [name for name in named if not (PACKAGE / name).exists()] == []


def test_every_class_and_function_that_is_named_is_public_or_where_it_is_said_to_be() -> None:
    sources = "\n".join(path.read_text(encoding="utf-8") for path in PACKAGE.rglob("*.py"))
    named = set(re.findall(r"`(?:\w+\.)*(\w+)(?:\([^`]*\))?`", README)) - {"checkpointmanager", "py", "null"}

    assert [name for name in sorted(named) if not re.search(rf"\b{name}\b", sources)] == []
