"""A node without a cluster, and a TLS server for its credentials."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from dra_agent.rehearsal import Node
from draState.plugin import ApiServer, Credentials
from draState.plugin.rehearsal import LocalApiServer

from .kubeconfigs import close_all
from .tlsserver import Authority, TlsServer


@pytest.fixture
def cluster() -> Iterator[LocalApiServer]:
    with LocalApiServer() as cluster:
        yield cluster


@pytest.fixture
def api_server(cluster: LocalApiServer) -> Iterator[ApiServer]:
    """A client of the cluster."""
    client = ApiServer(Credentials("127.0.0.1", int(cluster.address.rpartition(":")[2])), 2)
    yield client
    client.close()


@pytest.fixture
def node(cluster: LocalApiServer) -> Iterator[Node]:
    with Node(cluster.address) as node:
        yield node


@pytest.fixture
def socket_path() -> Iterator[str]:
    """Not below tmp_path, which may be too deep for a socket."""
    with tempfile.TemporaryDirectory(prefix="dra-", dir="/tmp") as folder:
        yield os.path.join(folder, "s.sock")


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture
def server(authority: Authority) -> Iterator[TlsServer]:
    with TlsServer(authority) as server:
        yield server


@pytest.fixture
def folder(tmp_path: Path, authority: Authority) -> Iterator[Path]:
    """The folder of the kubeconfig, with the files that it names."""
    for name in ("ca.crt", "client.crt", "client.key"):
        (tmp_path / name).write_bytes((authority.folder / name).read_bytes())
    yield tmp_path
    close_all()
