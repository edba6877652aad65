"""A node without a cluster."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from dra_agent.rehearsal import LocalApiServer, Node


@pytest.fixture
def cluster() -> Iterator[LocalApiServer]:
    with LocalApiServer() as cluster:
        yield cluster


@pytest.fixture
def node(cluster: LocalApiServer) -> Iterator[Node]:
    with Node(cluster.address) as node:
        yield node
