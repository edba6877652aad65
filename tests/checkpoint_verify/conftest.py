"""Few fixtures, named after things. All directories are on the disk: the command is another process."""

from __future__ import annotations

from pathlib import Path

import pytest

from .state import make


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """Four good claims, the first with a previous generation."""
    return make(tmp_path / "claims")
