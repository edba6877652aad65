"""Endpoints that are dead, that accept a connection and never answer, or that have an IPv6 address."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from checkpoint_verify import cli
from checkpointmanager import CheckpointManager, CheckpointWriteFailed
from checkpointmanager._etcd.connections import Connections
from checkpointmanager._etcd.endpoints import Credentials
from checkpointmanager.etcd import EtcdUnavailable

from .conftest import Opening
from .servers import Cluster, any_etcd, free_ports

Manager = CheckpointManager[Any]


@pytest.fixture
def silent() -> Iterator[str]:
    """Accepts connections and never sends a byte."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"http://127.0.0.1:{server.getsockname()[1]}"


@pytest.fixture
def dead() -> str:
    return f"http://127.0.0.1:{free_ports(1)[0]}"


@pytest.mark.parametrize("kind", ["silent", "dead"])
def test_the_next_endpoint_is_used_in_time(
    cluster: Cluster, opening: Opening, request: pytest.FixtureRequest, kind: str
) -> None:
    useless = request.getfixturevalue(kind)
    manager: Manager = CheckpointManager(opening(endpoints=[useless, *cluster.endpoints], timeout=4))
    manager.create_checkpoint("a", 1)
    assert manager.get_checkpoint("a").data == 1


@pytest.mark.parametrize("kind", ["silent", "dead"])
def test_without_another_endpoint_it_is_an_error_in_time(
    opening: Opening, request: pytest.FixtureRequest, kind: str
) -> None:
    with pytest.raises(EtcdUnavailable, match=r"no answer within 0\.2 s.*check the endpoints"):
        opening(endpoints=[request.getfixturevalue(kind)], timeout=0.2)


def test_a_write_that_meets_only_silence_fails_in_time(
    opening: Opening, silent: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = opening()
    manager: Manager = CheckpointManager(store)
    manager.create_checkpoint("a", 1)
    with monkeypatch.context() as patch:
        connections = Connections([silent.removeprefix("http://")], Credentials(), tls=False)
        patch.setattr(store._client, "_connections", connections)
        patch.setattr(store, "_timeout", 0.2)
        with pytest.raises(CheckpointWriteFailed, match=r"no answer within 0\.2 s"):
            manager.create_checkpoint("a", 2)
        connections.close()
    manager.create_checkpoint("a", 3)
    assert manager.get_checkpoint("a").data == 3


def test_a_slash_after_the_port_changes_nothing(cluster: Cluster, opening: Opening) -> None:
    store = opening(endpoints=[f"{endpoint}/" for endpoint in cluster.endpoints])
    assert store.path == f"etcd://{cluster.endpoints[0].removeprefix('http://')}{store._layout.prefix}"


def _has_ipv6() -> bool:
    try:
        with socket.create_server(("::1", 0), family=socket.AF_INET6):
            return True
    except OSError:
        return False


@pytest.mark.skipif(not _has_ipv6(), reason="this machine has no IPv6 on loopback")
def test_an_ipv6_address_works_for_a_store_and_for_checkpoint_verify(
    tmp_path: Path, opening: Opening, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster = Cluster(any_etcd(), tmp_path, host="[::1]")
    try:
        store = opening(endpoints=cluster.endpoints)
        CheckpointManager(store).create_checkpoint("a", 1)
        assert cli.main([store.path]) == 0
        assert cli.main(["show", f"{store.path}/a.json"]) == 0
        assert "GOOD etcd://[::1]:" in capsys.readouterr().out
        store.close()
    finally:
        cluster.close()
