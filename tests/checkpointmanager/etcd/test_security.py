"""Certificates, users and passwords: what is wrong is an error in time, with a reason, and never a lost change."""

from __future__ import annotations

import base64
import errno
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from checkpointmanager import CheckpointError, CheckpointManager, CheckpointWriteFailed
from checkpointmanager.etcd import EtcdStore, EtcdUnavailable

from .certificates import Authority
from .servers import Cluster, any_etcd

TIMEOUT = 0.5


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory, authority: Authority) -> Iterator[Cluster]:
    """A member that speaks TLS and wants a client certificate."""
    certificate, key = authority.sign("server")
    cluster = Cluster(any_etcd(), tmp_path_factory.mktemp("guarded"), arguments=_tls(authority, certificate, key))
    _wait_for_tls(cluster, authority)
    yield cluster
    cluster.close()


def _tls(authority: Authority, certificate: Path, key: Path) -> list[str]:
    trusted = ["--trusted-ca-file", str(authority.certificate), "--client-cert-auth"]
    return ["--cert-file", str(certificate), "--key-file", str(key), *trusted]


def _wait_for_tls(cluster: Cluster, authority: Authority) -> None:
    cert, key = authority.sign("first")
    EtcdStore(cluster.endpoints, "/first", timeout=30, ca=authority.certificate, cert=cert, key=key).close()


def test_a_store_works_over_tls_with_a_client_certificate(guarded: Cluster, authority: Authority) -> None:
    cert, key = authority.sign("agent")
    with CheckpointManager[Any](
        EtcdStore(guarded.endpoints, "/tls", ca=authority.certificate, cert=cert, key=key)
    ) as manager:
        manager.create_checkpoint("a", 1)
        assert manager.get_checkpoint("a").data == 1


@pytest.mark.parametrize("client", ["none", "expired", "of another authority"])
def test_a_client_without_a_good_certificate_is_refused_in_time(
    guarded: Cluster, authority: Authority, tmp_path: Path, client: str
) -> None:
    options: dict[str, Any] = {"ca": authority.certificate, "timeout": TIMEOUT}
    if client == "expired":
        options["cert"], options["key"] = authority.sign("expired", expired=True)
    if client == "of another authority":
        options["cert"], options["key"] = Authority(tmp_path / "other").sign("agent")
    with pytest.raises(EtcdUnavailable) as refusal:
        EtcdStore(guarded.endpoints, "/tls", **options)
    assert "check the endpoints" in str(refusal.value)


def test_a_server_whose_certificate_has_run_out_is_not_trusted(authority: Authority, tmp_path: Path) -> None:
    certificate, key = authority.sign("stale-server", expired=True)
    cluster = Cluster(any_etcd(), tmp_path, arguments=_tls(authority, certificate, key))
    cert, client_key = authority.sign("agent-of-it")
    try:
        with pytest.raises(EtcdUnavailable, match=r"(?i)certificate|handshake"):
            EtcdStore(cluster.endpoints, "/tls", ca=authority.certificate, cert=cert, key=client_key, timeout=3)
    finally:
        cluster.close()


def test_a_server_that_another_authority_signed_is_not_trusted(guarded: Cluster, tmp_path: Path) -> None:
    other = Authority(tmp_path / "other")
    cert, key = other.sign("agent")
    with pytest.raises(EtcdUnavailable):
        EtcdStore(guarded.endpoints, "/tls", ca=other.certificate, cert=cert, key=key, timeout=TIMEOUT)


def test_a_certificate_file_that_is_missing_is_named(guarded: Cluster, tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"missing\.pem"):
        EtcdStore(guarded.endpoints, "/tls", ca=tmp_path / "missing.pem")


@pytest.fixture(scope="module")
def members_only(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A member with users root and agent; agent may read and write below /allowed. Authentication is still off."""
    cluster = Cluster(any_etcd(), tmp_path_factory.mktemp("members-only"), arguments=["--auth-token-ttl", "1"])
    for name in ("root", "agent"):
        cluster.administer("auth/user/add", name=name, password=f"{name}'s secret")
        cluster.administer("auth/role/add", name=name)
        cluster.administer("auth/user/grant", user=name, role=name)
    allowed = {"permType": "READWRITE", "key": _base64("/allowed/"), "range_end": _base64("/allowed0")}
    cluster.administer("auth/role/grant", name="agent", perm=allowed)
    yield cluster
    cluster.close()


def _base64(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


AGENT: dict[str, Any] = {"user": "agent", "password": "agent's secret"}


@pytest.fixture
def guests(members_only: Cluster) -> Iterator[Cluster]:
    """The same with authentication on."""
    members_only.administer("auth/enable")
    yield members_only
    login = members_only.administer("auth/authenticate", name="root", password="root's secret")
    members_only.administer("auth/disable", token=login["token"])


def test_a_user_with_a_password_may_do_what_its_role_allows(guests: Cluster) -> None:
    with CheckpointManager[Any](EtcdStore(guests.endpoints, "/allowed/a", **AGENT)) as manager:
        manager.create_checkpoint("a", 1)
        with manager.transaction() as transaction:
            transaction.create_checkpoint("a", 2)
            transaction.create_checkpoint("b", 2)
        assert len(manager.load().checkpoints) == 2


@pytest.mark.parametrize(
    ("login", "prefix"),
    [({}, "/allowed/b"), ({**AGENT, "password": "guessed"}, "/allowed/b"), (AGENT, "/forbidden")],
    ids=["without a login", "wrong password", "another prefix"],
)
def test_whoever_is_not_allowed_is_told_so_at_once(guests: Cluster, login: dict[str, Any], prefix: str) -> None:
    with pytest.raises(EtcdUnavailable) as refusal:
        EtcdStore(guests.endpoints, prefix, timeout=3600, **login)  # so it is not by waiting that it is told
    assert refusal.value.errno == errno.EACCES
    assert "secret" not in str(refusal.value)
    assert "guessed" not in str(refusal.value)


def test_an_owner_goes_on_when_authentication_is_switched_on_and_when_its_token_runs_out(
    members_only: Cluster, request: pytest.FixtureRequest
) -> None:
    with CheckpointManager[Any](EtcdStore(members_only.endpoints, "/allowed/c", **AGENT)) as manager:
        manager.create_checkpoint("a", 1)
        request.getfixturevalue("guests")
        manager.create_checkpoint("a", 2)
        manager._store._client._token = "run out"  # type: ignore[attr-defined]
        manager.create_checkpoint("a", 3)
        assert manager.get_checkpoint("a").data == 3


def test_an_owner_without_a_login_is_refused_when_authentication_is_switched_on(
    members_only: Cluster, request: pytest.FixtureRequest
) -> None:
    with CheckpointManager[Any](EtcdStore(members_only.endpoints, "/allowed/d")) as manager:
        manager.create_checkpoint("a", 1)
        request.getfixturevalue("guests")
        with pytest.raises(CheckpointWriteFailed) as refusal:
            manager.create_checkpoint("a", 2)
    assert refusal.value.errno == errno.EACCES
    assert not refusal.value.in_doubt


@pytest.mark.parametrize(
    ("endpoints", "options", "words"),
    [
        ([], {}, "with one at least"),
        ("http://127.0.0.1:2379", {}, "a list of URLs"),
        (["127.0.0.1:2379"], {}, "write http://HOST:PORT"),
        (["http://127.0.0.1"], {}, "write http://HOST:PORT"),
        (["http://user:word@127.0.0.1:2379"], {}, "write http://HOST:PORT"),
        (["http://127.0.0.1:1", "https://127.0.0.1:2"], {}, "all of them"),
        (["http://127.0.0.1:1"], {"ca": "ca.pem"}, "write https"),
        (["https://127.0.0.1:1"], {"cert": "a.pem"}, "cert and key"),
        (["http://127.0.0.1:1"], {"user": "agent"}, "user and password"),
        (["http://127.0.0.1:1"], {"ttl": 0}, "ttl is a number of seconds above 0"),
        (["http://127.0.0.1:1"], {"timeout": float("nan")}, "timeout is a number"),
        (["http://127.0.0.1:1"], {"prefix": "agents"}, "begins with a slash"),
        (["http://127.0.0.1:1"], {"prefix": "/"}, "begins with a slash"),
        (["http://127.0.0.1:1"], {"max_bytes": 0}, "max_bytes"),
    ],
)
def test_arguments_that_make_no_sense_are_refused_before_anything_is_asked(
    endpoints: list[str], options: dict[str, Any], words: str
) -> None:
    with pytest.raises(ValueError, match=words) as refusal:
        EtcdStore(endpoints, **{"prefix": "/a", **options})
    assert "word@" not in str(refusal.value)
