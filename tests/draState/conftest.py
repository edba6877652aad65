"""Few fixtures, named after things. `directory` is on pyfakefs, `real_directory` on the disk."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyfakefs.fake_filesystem import FakeFilesystem

from .node import Node


@pytest.fixture
def directory(fs: FakeFilesystem) -> Path:
    fs.create_dir("/var/lib/agent")
    return Path("/var/lib/agent/claims")


@pytest.fixture
def real_directory(tmp_path: Path) -> Path:
    return tmp_path / "claims"


@pytest.fixture
def node(directory: Path) -> Iterator[Node]:
    node = Node(directory)
    yield node
    node.stop()


@pytest.fixture
def real_node(real_directory: Path) -> Iterator[Node]:
    node = Node(real_directory)
    yield node
    node.stop()
