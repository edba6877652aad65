"""The recipes of the images copy what tools/release builds, and the manuals run these images, in this version."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from checkpointmanager import __version__

TOOLS = Path(__file__).parents[2] / "tools"
BUILT = {
    "checkpoint-verify": f"ARG FILE=checkpoint-verify-{__version__}-linux-x86_64\n",
    "dra-agent": f"ARG WHEEL=checkpointmanager-{__version__}-py3-none-any.whl\n",
}


@pytest.mark.parametrize("name", BUILT)
def test_a_recipe_takes_the_file_of_this_release_and_names_the_image_after_it(name: str) -> None:
    text = (TOOLS / "releasing" / "images" / f"{name}.Containerfile").read_text(encoding="utf-8")
    assert BUILT[name] in text
    assert f"buildah build -f tools/releasing/images/{name}.Containerfile -t {name}:{__version__} dist" in text


def test_the_manuals_run_these_images() -> None:
    manual = (TOOLS / "checkpoint_verify" / "README.md").read_text(encoding="utf-8")
    (debug,) = re.findall(r"kubectl debug .*\\\n\s+(.*)", manual)
    daemonset = (TOOLS / "dra_agent" / "daemonset.yaml").read_text(encoding="utf-8")

    assert f"--image=registry.example.com/checkpoint-verify:{__version__} " in manual
    assert debug.split()[0] == "checkpoint-verify"
    assert f"image: registry.example.com/dra-agent:{__version__}\n" in daemonset
