"""One server for all tests of the session, and for each test a prefix and a store on it."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from checkpointmanager.etcd import EtcdStore

from .servers import Cluster, any_etcd

_numbers = itertools.count(1)

Opening = Callable[..., EtcdStore]


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """One member, which no test stops or kills."""
    cluster = Cluster(any_etcd(), tmp_path_factory.mktemp("etcd"))
    yield cluster
    cluster.close()


@pytest.fixture
def prefix() -> str:
    return f"/tests/node-{next(_numbers)}"


@pytest.fixture
def opening(cluster: Cluster, prefix: str) -> Iterator[Opening]:
    """Opens stores, which are closed when the test ends."""
    with ExitStack() as opened:

        def open_store(**options: Any) -> EtcdStore:
            arguments = {"endpoints": cluster.endpoints, "prefix": prefix, "ttl": 60, "lock_timeout": 0, **options}
            store = EtcdStore(arguments.pop("endpoints"), arguments.pop("prefix"), **arguments)
            opened.callback(store.close)
            return store

        yield open_store


@pytest.fixture
def store(opening: Opening) -> EtcdStore:
    return opening()
