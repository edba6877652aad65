"""No page and no message names an installation that does not work: the project is on no package index.

Attackers can register a name that has no owner there, so nothing may ask a package index for it.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from checkpointmanager import __version__

ROOT = Path(__file__).parents[2]
NAMES = r"checkpoint[-_.]?manager|dra[-_.]?state|checkpoint[-_.]?verify|dra[-_.]?agent"
INSTALLERS = r"(?:pip3?|pipx|uv|uvx|poetry|conda)\s+(?:tool\s+|run\s+|pip\s+)?(?:install|add|run|download)?"
# A wheel or a folder is a path; anything else after an installer, or before an extra, is asked of an index.
FROM_AN_INDEX = re.compile(
    rf"""(?:{INSTALLERS}[^\n#`|]*?[\s'"](?:{NAMES})(?![-\w.]*\.whl)(?![-\w.]*/))"""
    rf"""|(?:(?<![/\w-])(?:{NAMES})\[(?:agent|cli|metrics|bench|dev|release)\b)""",
    flags=re.IGNORECASE,
)
SHIPPED_WHEEL = re.compile(r"checkpointmanager-([^-\s]+)-py3-none-any\.whl")
SUFFIXES = {".md", ".py", ".toml", ".yaml", ".yml", ".json", ".svg", ".Containerfile", ""}


def pages() -> list[Path]:
    """Every text from which a reader or a program may take an installation command."""
    tops = [
        ROOT / "README.md",
        ROOT / "pyproject.toml",
        *(ROOT / top for top in ("checkpointmanager", "draState", "tools", ".github")),
    ]
    found = [path for top in tops for path in ([top] if top.is_file() else top.rglob("*"))]
    found += (ROOT / "tests").rglob("*.md")
    return [path for path in found if path.is_file() and path.suffix in SUFFIXES]


@pytest.mark.parametrize(
    "text",
    [
        "pip install checkpointmanager",
        "pip install 'checkpointmanager[cli]'",
        "pip install -q 'checkpointmanager[cli]' && checkpoint-verify",
        "pip install --upgrade checkpointmanager==0.1.0",
        "pipx install checkpoint-verify",
        "uv tool install checkpoint_verify",
        "uv add draState",
        'agent = ["checkpointmanager[metrics]"]',
    ],
)
def test_this_would_be_found(text: str) -> None:
    assert FROM_AN_INDEX.search(text)


@pytest.mark.parametrize(
    "text",
    [
        "pip install '.[cli]'",
        "pip install './checkpointmanager-0.1.0-py3-none-any.whl[cli]'",
        "pip install atheris  # for checkpointmanager",
        "(pip install '.[cli]') or (pip install './checkpointmanager-{__version__}-py3-none-any.whl[cli]')",
    ],
)
def test_this_is_allowed(text: str) -> None:
    assert not FROM_AN_INDEX.search(text)


def test_nothing_asks_a_package_index_for_the_project() -> None:
    texts = {path: path.read_text(encoding="utf-8") for path in pages()}
    assert len(texts) > 150

    found = [
        f"{path.relative_to(ROOT)}: {match[0]}"
        for path, text in texts.items()
        for match in FROM_AN_INDEX.finditer(text)
    ]

    assert found == []


@pytest.mark.parametrize("page", ["README.md", "tools/checkpoint_verify/README.md", "tools/dra_agent/README.md"])
def test_every_manual_describes_the_installation_in_the_same_words(page: str) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    extra = "agent" if "dra_agent" in page else "cli"
    wheel = f"pip install './checkpointmanager-{__version__}-py3-none-any.whl[{extra}]'"

    clone = f"pip install '.[{extra}]'".ljust(len(wheel))
    assert f"    {clone}   # from a clone, or\n    {wheel}   # from a wheel\n" in text
    assert "is not on a package index" in text


def test_every_wheel_that_is_named_has_the_version_of_this_one() -> None:
    named = {version for path in pages() for version in SHIPPED_WHEEL.findall(path.read_text(encoding="utf-8"))}

    assert named - {"{__version__}"} == {__version__}


@pytest.mark.parametrize("missing", ["grpc", "google.protobuf", "prometheus_client"])
def test_dra_agent_without_its_extra_names_the_extra(missing: str) -> None:
    ended = run_without(missing)

    assert (ended.returncode, ended.stdout) == (1, "")
    assert ended.stderr.startswith("dra-agent: ")
    assert "pip install '.[agent]'" in ended.stderr
    assert f"checkpointmanager-{__version__}-py3-none-any.whl[agent]" in ended.stderr
    assert "Traceback" not in ended.stderr


def test_a_broken_installation_of_dra_agent_looks_like_one() -> None:
    ended = run_without("draState")

    assert ended.returncode == 1
    assert "Traceback" in ended.stderr
    assert "[agent]" not in ended.stderr


def run_without(module: str) -> subprocess.CompletedProcess[str]:
    """`dra-agent --help`, where that module is not installed."""
    program = f"""
import importlib.abc, sys
class Absent(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name == {module!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
sys.meta_path.insert(0, Absent())
from dra_agent.__main__ import main
sys.exit(main())
"""
    return subprocess.run(
        [sys.executable, "-c", program, "--help"],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        capture_output=True,
        text=True,
        check=False,
        timeout=500,
    )
