"""Few fixtures, named after things. All are on the disk, whose syncs nobody waits for."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from unittest import mock

import pytest

from .driverside import DriverNode
from .node import Node


@pytest.fixture
def directory(tmp_path: Path) -> Iterator[Path]:
    with mock.patch.object(os, "fsync", os.fstat), mock.patch.object(os, "fdatasync", os.fstat):
        yield tmp_path / "claims"


@pytest.fixture
def node(directory: Path) -> Iterator[Node]:
    """Kubelet's side."""
    node = Node(directory)
    yield node
    node.stop()


@pytest.fixture
def driver(directory: Path) -> Iterator[DriverNode]:
    """A driver's side."""
    node = DriverNode(directory)
    yield node
    node.stop()
