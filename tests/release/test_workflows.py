"""The workflows run what the README shows, on every Python that is claimed, and publish nothing by themselves."""

from __future__ import annotations

import re
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from checkpointmanager import __version__

ROOT = Path(__file__).parents[2]
WORKFLOWS = ROOT / ".github" / "workflows"
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


def workflow(name: str) -> dict[str, Any]:
    loaded: dict[str, Any] = yaml.safe_load((WORKFLOWS / f"{name}.yml").read_text(encoding="utf-8"))
    return loaded


def commands(job: dict[str, Any]) -> list[str]:
    return [step["run"] for step in job["steps"] if "run" in step]


def test_the_two_commands_of_the_readme_run_on_every_supported_python() -> None:
    job = workflow("test")["jobs"]["readme"]
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    shown = re.findall(r"^    (tools/\w+) +# ", readme, flags=re.MULTILINE)

    assert [command.split()[-1] for command in commands(job)[-2:]] == shown
    claimed = [entry.rpartition(" ")[2] for entry in PROJECT["project"]["classifiers"] if ":: 3." in entry]
    assert job["strategy"]["matrix"]["python"] == claimed


def test_nothing_is_published_before_a_person_has_switched_it_on() -> None:
    jobs = workflow("release")["jobs"]

    assert jobs["index"]["if"] == "vars.PUBLISH == 'true'"
    assert jobs["index"]["environment"] == "release"
    assert jobs["index"]["permissions"] == {"id-token": "write"}
    assert jobs["repository"]["needs"] == "index", "it is skipped with it"
    assert jobs["index"]["needs"] == "build"


@pytest.mark.parametrize("name", [path.stem for path in WORKFLOWS.iterdir()])
def test_a_workflow_may_only_read_and_has_no_secret(name: str) -> None:
    text = (WORKFLOWS / f"{name}.yml").read_text(encoding="utf-8")
    assert workflow(name)["permissions"] == {"contents": "read"}
    assert "secrets." not in text
    assert re.findall(r"uses: (?!(?:actions|pypa)/[\w-]+@\S+$).*", text, flags=re.MULTILINE) == []


@pytest.mark.parametrize(
    ("tag", "urls", "passes"),
    [
        (f"v{__version__}", '[project.urls]\nSource = "https://example.org/"\n', True),
        ("v9.9.9", '[project.urls]\nSource = "https://example.org/"\n', False),
        (f"v{__version__}", "", False),
    ],
)
def test_a_release_needs_the_tag_of_its_version_and_a_home(tag: str, urls: str, passes: bool, tmp_path: Path) -> None:
    (check,) = (command for command in commands(workflow("release")["jobs"]["build"]) if "grep" in command)
    (tmp_path / "checkpointmanager").mkdir()
    (tmp_path / "checkpointmanager" / "__init__.py").write_text(f'__version__ = "{__version__}"\n')
    (tmp_path / "pyproject.toml").write_text(urls)

    # As the runner does.
    ended = subprocess.run(["bash", "-e", "-c", check], cwd=tmp_path, env={"GITHUB_REF_NAME": tag}, check=False)

    assert (ended.returncode == 0) == passes
