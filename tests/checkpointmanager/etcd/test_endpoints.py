"""Arguments that make no sense; endpoints that are dead, or accept a connection and never answer; IPv6 addresses."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from checkpoint_verify import cli
from checkpointmanager import CheckpointManager
from checkpointmanager.etcd import EtcdStore, EtcdUnavailable

from .conftest import Opening
from .servers import Cluster, any_etcd, free_ports

Manager = CheckpointManager[Any]


@pytest.mark.parametrize(
    ("endpoints", "options", "words"),
    [
        ([], {}, "with one at least"),
        ("http://127.0.0.1:2379", {}, "a list of URLs"),
        (["127.0.0.1:2379"], {}, "write http://HOST:PORT"),
        (["http://127.0.0.1"], {}, "write http://HOST:PORT"),
        (["http://user:word@127.0.0.1:2379"], {}, "write http://HOST:PORT"),
        (["http://@127.0.0.1:2379"], {}, "write http://HOST:PORT"),
        (["http://127.0.0.1:port"], {}, "write http://HOST:PORT"),
        (["http://127.0.0.1:0"], {}, "write http://HOST:PORT"),
        (["http://127.0.0.1:65536"], {}, "write http://HOST:PORT"),
        (["http://[::1:2379"], {}, "write http://HOST:PORT"),
        (["http://127.0.0.1:2379/v3"], {}, "write http://HOST:PORT"),
        ([b"http://127.0.0.1:2379"], {}, "write http://HOST:PORT"),
        ([2379], {}, "write http://HOST:PORT"),
        (["http://127.0.0.1:1", "https://127.0.0.1:2"], {}, "all of them"),
        (["http://127.0.0.1:1"], {"ca": "ca.pem"}, "write https"),
        (["https://127.0.0.1:1"], {"cert": "a.pem"}, "cert and key"),
        (["http://127.0.0.1:1"], {"user": "agent"}, "user and password"),
        (["http://127.0.0.1:1"], {"password_file": "p"}, "user and password"),
        (["http://127.0.0.1:1"], {"user": "a", "password": "b", "password_file": "c"}, "the password once"),
        (["http://127.0.0.1:1"], {"ttl": 0}, "ttl is a number of seconds above 0"),
        (["http://127.0.0.1:1"], {"timeout": float("nan")}, "timeout is a number"),
        (["http://127.0.0.1:1"], {"timeout": float("inf")}, "timeout is a number"),
        (["http://127.0.0.1:1"], {"ttl": float("inf")}, "ttl is a number of seconds above 0 and at most 86400"),
        (["http://127.0.0.1:1"], {"prefix": "agents"}, "begins with a slash"),
        (["http://127.0.0.1:1"], {"prefix": "/"}, "begins with a slash"),
        (["http://127.0.0.1:1"], {"prefix": ""}, "begins with a slash"),
        (["http://127.0.0.1:1"], {"prefix": "/agents//node-7"}, "a name after each"),
        (["http://127.0.0.1:1"], {"prefix": "/agents/../node-7"}, "a name after each"),
        (["http://127.0.0.1:1"], {"prefix": "/agents/./node-7"}, "a name after each"),
        (["http://127.0.0.1:1"], {"prefix": "/agents/.quarantine"}, "holds the damaged copies"),
        (["http://127.0.0.1:1"], {"prefix": "/agents/.quarantine/node-7"}, "holds the damaged copies"),
        (["http://127.0.0.1:1"], {"prefix": "/agents/node\n7"}, "printable"),
        (["http://127.0.0.1:1"], {"prefix": "/" + "é" * 500}, "at most 1000 bytes"),
        (["http://127.0.0.1:1"], {"max_bytes": 0}, "max_bytes"),
    ],
)
def test_arguments_that_make_no_sense_are_refused_before_anything_is_asked(
    endpoints: Any, options: dict[str, Any], words: str
) -> None:
    with pytest.raises(ValueError, match=words) as refusal:
        EtcdStore(endpoints, **{"prefix": "/a", **options})
    assert "word@" not in str(refusal.value)


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
