"""Few fixtures, named after things. All directories are on the disk: the command is another process."""

from __future__ import annotations

import os
import shutil
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from .command import NOBODY
from .state import make


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """Four good claims, the first with a previous generation."""
    return make(tmp_path / "claims")


@pytest.fixture
def reachable_directory() -> Iterator[Path]:
    """The same, where other users can reach it: pytest's folders are private to the user who runs it.

    Only root can act as another user and give files away, so other users skip the test.
    """
    if os.geteuid() != 0:
        pytest.skip("only root can become another user")
    places = [Path(place).resolve() for place in (tempfile.gettempdir(), "/tmp", "/var/tmp", "/dev/shm")]
    reachable = next((place for place in places if others_may_enter(place)), None)
    if reachable is None:
        pytest.skip("no folder for temporary files that other users may enter")
    above = Path(tempfile.mkdtemp(prefix="checkpoint-verify-", dir=reachable))
    above.chmod(0o755)
    yield make(above / "claims")
    shutil.rmtree(above)


@pytest.fixture
def agents_directory(reachable_directory: Path) -> Path:
    """The same, with an agent that does not run as root."""
    for path in (reachable_directory, *reachable_directory.iterdir()):
        os.chown(path, NOBODY, NOBODY)
    return reachable_directory


def others_may_enter(folder: Path) -> bool:
    """A clone and its temporary files may be below a home that only its owner may enter."""
    return folder.is_dir() and all(place.stat().st_mode & stat.S_IXOTH for place in (folder, *folder.parents))
