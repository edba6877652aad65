"""One server for all tests of the session, and for each test a prefix and a store on it."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from checkpointmanager.etcd import EtcdStore

from .client import Etcd
from .line import Line
from .servers import Cluster, any_etcd

_numbers = itertools.count(1)

Opening = Callable[..., EtcdStore]


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """One member, which no test stops or kills."""
    cluster = Cluster(any_etcd(), tmp_path_factory.mktemp("etcd"))
    yield cluster
    cluster.close()


@pytest.fixture(scope="session")
def stoppable(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Another member, which tests stop; it runs again after each test."""
    cluster = Cluster(any_etcd(), tmp_path_factory.mktemp("stoppable"))
    yield cluster
    cluster.close()


@pytest.fixture
def etcd(cluster: Cluster) -> Etcd:
    """The server without a store, as an operator sees it."""
    return cluster.etcd


@pytest.fixture
def prefix() -> str:
    return f"/tests/node-{next(_numbers)}"


@pytest.fixture
def opening(cluster: Cluster, prefix: str) -> Iterator[Opening]:
    """Opens stores, which are closed when the test ends."""
    with ExitStack() as opened:

        def open_store(**options: Any) -> EtcdStore:
            where = options.pop("endpoints", cluster.endpoints), options.pop("prefix", prefix)
            store = EtcdStore(*where, **{"ttl": 60, "timeout": 30, "lock_timeout": 0, **options})
            opened.callback(store.close)
            return store

        yield open_store


@pytest.fixture
def store(opening: Opening) -> EtcdStore:
    return opening()


@pytest.fixture
def line(monkeypatch: pytest.MonkeyPatch) -> Line:
    """Between the stores of this test and the servers."""
    return Line(monkeypatch)


@pytest.fixture(params=[120, 1], ids=["", "more keys than can be compared"])
def _compared(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both forms of a request: the one for many keys, too, although the test has few."""
    monkeypatch.setattr("checkpointmanager._etcd.commit.MAX_COMPARED", request.param)


def lose_the_lease(etcd: Etcd, prefix: str) -> None:
    """The owner of this prefix loses its lease, as when it expires."""
    lock = etcd.get(f"{prefix}/.lock")
    assert lock
    etcd.revoke(lock.lease)
