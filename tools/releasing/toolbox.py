"""The tools that build a release: Debian's packages, which must be installed, and the dependency group release."""

from __future__ import annotations

import hashlib
import importlib.util
import os
import shutil
import subprocess
import sys
import sysconfig
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

PROGRAMS = {"git": "git", "patchelf": "patchelf", "objdump": "binutils", "readelf": "binutils", "strip": "binutils"}


class Missing(NamedTuple):
    what: str
    package: str  # the Debian package that provides it


class Toolbox(NamedTuple):
    """An environment in which the dependency group release is installed."""

    folder: Path

    @property
    def python(self) -> Path:
        return self.folder / "bin" / "python"

    @property
    def packages(self) -> Path:
        (folder,) = self.folder.glob("lib/python3*/site-packages")
        return folder


def missing() -> list[Missing]:
    """The requirements that this machine and this Python do not meet."""
    found = [
        Missing(f"the program {program}", package) for program, package in PROGRAMS.items() if not shutil.which(program)
    ]
    if not importlib.util.find_spec("ensurepip"):
        found.append(Missing("Python's ensurepip", "python3-venv"))
    library = sysconfig.get_config_var("INSTSONAME") or ""
    number = f"{sys.version_info.major}.{sys.version_info.minor}"
    if not any(folder and Path(folder, library).is_file() for folder in _library_folders()):
        found.append(Missing(f"Python as a shared library ({library or 'libpython'})", f"libpython{number}"))
    if shutil.which("readelf") and _has_runpath(sys.executable):
        found.append(
            Missing(f"a Python without a RUNPATH, which staticx refuses ({sys.executable} has one)", "python3")
        )
    return found


def advice(lacking: list[Missing]) -> str:
    """What to install, as a command to copy."""
    packages = " ".join(sorted({package for _, package in lacking}))
    lines = [f"tools/release: {what} is missing" for what, _ in lacking]
    return "\n".join([*lines, f"On Debian: apt-get install {packages}; then run tools/release without PYTHON set."])


def environment(clone: Path) -> Toolbox:
    """The environment for this list of requirements; made inside the clone if it does not exist."""
    with open(clone / "pyproject.toml", "rb") as file:
        wanted = tomllib.load(file)["dependency-groups"]["release"]
    mark = hashlib.sha256(repr((sys.executable, sys.version, wanted)).encode()).hexdigest()[:12]
    box = Toolbox(clone / ".venv" / f"release-{mark}")
    if not (box.folder / "complete").exists():
        print(f"Making the environment in {box.folder.relative_to(clone)} ...", flush=True)
        subprocess.run([sys.executable, "-m", "venv", "--clear", box.folder], check=True)
        install(box, *wanted)
        (box.folder / "complete").touch()
    return box


def install(box: Toolbox, *wanted: str) -> None:
    """Install packages into the environment."""
    quietly = ("--quiet", "--disable-pip-version-check", "--no-cache-dir")
    run([box.python, "-m", "pip", "install", *quietly, *wanted], cwd=box.folder)


def run(command: Sequence[str | Path], cwd: Path, **environment: str) -> None:
    """Run a builder; its output is shown only if it fails."""
    inherited = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    ended = subprocess.run(
        command, cwd=cwd, env={**inherited, **environment}, capture_output=True, text=True, check=False
    )
    if ended.returncode:
        raise SystemExit(f"{ended.stdout}{ended.stderr}\ntools/release: {Path(command[0]).name} failed, see above")


def _library_folders() -> list[str]:
    names = ("LIBDIR", "LIBPL")
    multiarch = sysconfig.get_config_var("MULTIARCH") or ""
    return [*(sysconfig.get_config_var(name) or "" for name in names), f"/usr/lib/{multiarch}", f"/lib/{multiarch}"]


def _has_runpath(program: str) -> bool:
    read = subprocess.run(["readelf", "-d", program], capture_output=True, text=True, check=False)
    return "(RUNPATH)" in read.stdout or "(RPATH)" in read.stdout
