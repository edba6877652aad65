"""A node without a cluster, and a TLS server for its credentials."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from dra_agent.rehearsal import Node
from draState.plugin import ApiServer, Credentials
from draState.plugin.rehearsal import Claim, LocalApiServer

from .conversation import claim_for, prepare
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


@pytest.fixture(scope="session")
def after_three_pods(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What an agent leaves on a node on which three pods run: its state and its CDI files. Made once, then copied."""
    left = tmp_path_factory.mktemp("node") / "left"
    with LocalApiServer() as cluster, Node(cluster.address) as node:
        agent = node.start()
        for claim in three_claims(cluster, node):
            assert not prepare(node, claim).error
        agent.terminate()
        shutil.copytree(node.folder, left, ignore=shutil.ignore_patterns("*.sock", "proc", "log-*"))
    return left


@pytest.fixture
def claims(node: Node, cluster: LocalApiServer, after_three_pods: Path) -> list[Claim]:
    """The claims a, b and c of three running pods, with gpu-0 to gpu-2.

    Their agent was stopped, so that nothing but the claims' files has their state.
    """
    for folder in ("s", "p", "cdi"):
        shutil.copytree(after_three_pods / folder, node.folder / folder)
    return three_claims(cluster, node)


def three_claims(cluster: LocalApiServer, node: Node) -> list[Claim]:
    return [claim_for(cluster, node, uid, f"gpu-{n}") for n, uid in enumerate("abc")]


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
