"""Builds sdist and wheel: the same bytes from the same commit on any machine."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

from . import toolbox


class Distributions(NamedTuple):
    sdist: Path
    wheel: Path


def build(source: Path, into: Path, python: Path, epoch: int) -> Distributions:
    """Build both from a folder of sources, with the hatchling of that Python."""
    into.mkdir(exist_ok=True)
    toolbox.run(
        [python, "-m", "hatchling", "build", "-t", "sdist", "-t", "wheel", "-d", into],
        cwd=source,
        SOURCE_DATE_EPOCH=str(epoch),
    )
    (sdist,), (wheel,) = into.glob("*.tar.gz"), into.glob("*.whl")
    return Distributions(sdist, wheel)


def version(source: Path) -> str:
    """The version that the sources claim, read without importing them."""
    text = (source / "checkpointmanager" / "__init__.py").read_text(encoding="utf-8")
    found = re.search(r'^__version__ = "(.+)"$', text, flags=re.MULTILINE)
    assert found, "hatchling reads the same line"
    return found[1]
