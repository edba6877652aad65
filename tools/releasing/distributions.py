"""From the last commit to sdist, wheel and SHA256SUMS: the same bytes on any machine."""

from __future__ import annotations

import hashlib
import io
import re
import subprocess
import tarfile
from pathlib import Path
from typing import NamedTuple

from . import toolbox

SUMS = "SHA256SUMS"


class Commit(NamedTuple):
    """The last commit of a clone. Built files have its time and no other, so that two builds are the same bytes."""

    clone: Path
    epoch: int  # seconds
    differs: bool  # the clone has uncommitted changes

    @classmethod
    def last(cls, clone: Path) -> Commit:
        epoch = _git(clone, "log", "-1", "--format=%ct")
        return cls(clone, int(epoch), bool(_git(clone, "status", "--porcelain")))

    def export(self, folder: Path) -> Path:
        """Export its files into a new folder: nothing else in the clone is released."""
        folder.mkdir()
        with tarfile.open(fileobj=io.BytesIO(_git(self.clone, "archive", "HEAD"))) as archive:
            archive.extractall(folder)  # our own files; Python 3.11.2 has no extraction filters
        return folder


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


def write_checksums(folder: Path) -> None:
    """One line per file of the folder, as `sha256sum --check` reads it."""
    lines = [
        f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n"
        for path in sorted(folder.iterdir())
        if path.name != SUMS
    ]
    (folder / SUMS).write_text("".join(lines), encoding="utf-8")


def _git(clone: Path, *words: str) -> bytes:
    return subprocess.run(["git", *words], cwd=clone, check=True, stdout=subprocess.PIPE).stdout
