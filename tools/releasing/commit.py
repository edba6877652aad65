"""The commit that is released. Its time is the only time in the built files, so that two builds are the same bytes."""

from __future__ import annotations

import io
import subprocess
import tarfile
from pathlib import Path
from typing import NamedTuple


class Commit(NamedTuple):
    """The last commit of a clone."""

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


def _git(clone: Path, *words: str) -> bytes:
    return subprocess.run(["git", *words], cwd=clone, check=True, stdout=subprocess.PIPE).stdout
