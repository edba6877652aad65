"""Few fixtures, named after things. All directories are on the disk: the command is another process."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from .state import make


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """Four good claims, the first with a previous generation."""
    return make(tmp_path / "claims")


@pytest.fixture
def reachable_directory() -> Iterator[Path]:
    """The same, where other users can get at it: pytest's own folders are private to whoever runs it."""
    above = Path(tempfile.mkdtemp(prefix="checkpoint-verify-"))
    above.chmod(0o755)
    yield make(above / "claims")
    shutil.rmtree(above)
