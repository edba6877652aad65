"""The recipes of the images copy what tools/release builds, and run what is inside."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from checkpointmanager import __version__

ROOT = Path(__file__).parents[2]
IMAGES = ROOT / "tools" / "releasing" / "images"
MANUAL = (ROOT / "tools" / "checkpoint_verify" / "README.md").read_text(encoding="utf-8")
DAEMONSET = (ROOT / "tools" / "dra_agent" / "daemonset.yaml").read_text(encoding="utf-8")


def recipe(name: str) -> str:
    return (IMAGES / f"{name}.Containerfile").read_text(encoding="utf-8")


def test_the_image_of_checkpoint_verify_has_one_program_and_a_folder_to_unpack_it_in() -> None:
    text = recipe("checkpoint-verify")

    assert "\nFROM scratch\n" in text
    assert f"ARG FILE=checkpoint-verify-{__version__}-linux-x86_64\n" in text
    assert re.findall(r"^COPY .*\s(\S+)$", text, flags=re.MULTILINE) == ["/usr/bin/checkpoint-verify", "/licences.txt"]
    assert "\nWORKDIR /tmp\n" in text
    assert "\nRUN " not in text, "there is no shell"


def test_the_image_of_dra_agent_installs_the_wheel_with_its_extra() -> None:
    text = recipe("dra-agent")

    assert f"ARG WHEEL=checkpointmanager-{__version__}-py3-none-any.whl\n" in text
    assert '"/tmp/${WHEEL}[agent,cli]"' in text


@pytest.mark.parametrize("name", ["checkpoint-verify", "dra-agent"])
def test_the_command_that_builds_it_names_it_and_its_version(name: str) -> None:
    assert f"buildah build -f tools/releasing/images/{name}.Containerfile -t {name}:{__version__} dist" in recipe(name)


def test_the_manuals_run_these_images() -> None:
    (debug,) = re.findall(r"kubectl debug .*\\\n\s+(.*)", MANUAL)

    assert f"--image=registry.example.com/checkpoint-verify:{__version__} " in MANUAL
    assert debug.split()[0] == "checkpoint-verify"
    assert f"image: registry.example.com/dra-agent:{__version__}\n" in DAEMONSET
