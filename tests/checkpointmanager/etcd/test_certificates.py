"""TLS: a client without a valid certificate is refused in time, and renewed certificates need no restart."""

from __future__ import annotations

import logging
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from checkpointmanager import CheckpointError
from checkpointmanager.etcd import EtcdStore, EtcdUnavailable

from ..processes import until
from .certificates import DAY, Authority, Pair
from .client import Etcd
from .history import History
from .load import Load
from .servers import Cluster, any_etcd

TIMEOUT = 0.5  # seconds
SERVING = "ready to serve client requests"  # in the log of etcd 3.4 and later
SHORT_LIFE = 4.0  # seconds: enough to connect


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory, authority: Authority) -> Iterator[Cluster]:
    """A member that speaks TLS and wants a client certificate."""
    arguments = _tls(authority.certificate, authority.sign("server"))
    cluster = Cluster(any_etcd(), tmp_path_factory.mktemp("guarded"), arguments=arguments)
    cert, key = authority.sign("first")
    EtcdStore(cluster.endpoints, "/first", timeout=30, ca=authority.certificate, cert=cert, key=key).close()
    yield cluster
    cluster.close()


def _tls(trusted: Path, server: Pair) -> list[str]:
    own = ["--cert-file", str(server.certificate), "--key-file", str(server.key)]
    return [*own, "--trusted-ca-file", str(trusted), "--client-cert-auth"]


@pytest.mark.parametrize("client", ["none", "expired", "of another authority"])
def test_a_client_without_a_good_certificate_is_refused_in_time(
    guarded: Cluster, authority: Authority, tmp_path: Path, client: str
) -> None:
    options: dict[str, Any] = {"ca": authority.certificate, "timeout": TIMEOUT}
    if client == "expired":
        options["cert"], options["key"] = authority.sign("expired", seconds=-DAY)
    if client == "of another authority":
        options["cert"], options["key"] = Authority(tmp_path / "other").sign("agent")
    with pytest.raises(EtcdUnavailable) as refusal:
        EtcdStore(guarded.endpoints, "/tls", **options)
    assert "check the endpoints" in str(refusal.value)


def test_a_certificate_file_that_is_missing_is_named(guarded: Cluster, tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"missing\.pem"):
        EtcdStore(guarded.endpoints, "/tls", ca=tmp_path / "missing.pem")


class Renewable:
    """A server and an agent whose certificate files are replaced while they run."""

    def __init__(self, folder: Path, authority: Authority) -> None:
        self.authority = authority
        self.ca = folder / "ca.pem"
        self.server = Pair(folder / "server.pem", folder / "server.key")
        self.agent = Pair(folder / "agent.pem", folder / "agent.key")
        _replace(self.ca, authority.certificate)
        replace(self.server, authority.sign("server-1"))
        replace(self.agent, authority.sign("agent-1"))
        self.cluster = Cluster(any_etcd(), folder / "etcd", arguments=_tls(authority.certificate, self.server))
        EtcdStore(self.cluster.endpoints, "/first", timeout=30, **self.files).close()

    @property
    def files(self) -> dict[str, Any]:
        return {"ca": self.ca, "cert": self.agent.certificate, "key": self.agent.key}

    def history(self, prefix: str) -> History:
        return History(Etcd(self.cluster.endpoints[0], **self.files), prefix)

    def lets_in(self) -> bool:
        """Whether a new connection with the agent's files is accepted."""
        try:
            EtcdStore(self.cluster.endpoints, "/first", read_only=True, timeout=TIMEOUT, **self.files).keys()
        except EtcdUnavailable:
            return False
        return True

    def restart_server(self) -> None:
        """It ends all connections, and serves again: from then on, a refusal is due to the certificates."""
        (member,) = self.cluster.members
        member.end()
        starts = member.log.read_text().count(SERVING)
        member.start(self.cluster.program)
        until(lambda: member.log.read_text().count(SERVING) > starts)


def replace(old: Pair, new: Pair) -> None:
    _replace(old.certificate, new.certificate)
    _replace(old.key, new.key)


def _replace(old: Path, new: Path) -> None:
    shutil.copy(new, temp := old.with_suffix(".new"))
    temp.rename(old)


@pytest.fixture
def renewable(tmp_path: Path, authority: Authority) -> Iterator[Renewable]:
    renewable = Renewable(tmp_path, authority)
    yield renewable
    renewable.cluster.close()


class ServerExpired:
    """The server's certificate has expired, and then it is renewed, which etcd notices without a restart."""

    def spoil(self, renewable: Renewable) -> None:
        replace(renewable.server, renewable.authority.sign("server-2", seconds=-DAY))

    def mend(self, renewable: Renewable) -> None:
        replace(renewable.server, renewable.authority.sign("server-3"))


class HalfReplaced:
    """The agent's certificate and its key are two files, and the second one comes much later."""

    def spoil(self, renewable: Renewable) -> None:
        self._new = renewable.authority.sign("agent-2")
        _replace(renewable.agent.certificate, self._new.certificate)

    def mend(self, renewable: Renewable) -> None:
        _replace(renewable.agent.key, self._new.key)


class AnotherAuthority:
    """Another authority signs the server's new certificate, and the agent's `ca` follows."""

    def spoil(self, renewable: Renewable) -> None:
        self._other = Authority(renewable.ca.parent / "other")
        replace(renewable.server, self._other.sign("server-2"))

    def mend(self, renewable: Renewable) -> None:
        _replace(renewable.ca, self._other.certificate)


@pytest.mark.parametrize("trouble", [ServerExpired(), HalfReplaced(), AnotherAuthority()], ids=type)
def test_writes_go_on_with_new_certificates_and_nothing_acknowledged_is_lost(
    renewable: Renewable, prefix: str, trouble: ServerExpired | HalfReplaced | AnotherAuthority
) -> None:
    with Load(renewable.cluster, prefix, timeout=TIMEOUT, **renewable.files) as load:
        load.follow(5)
        trouble.spoil(renewable)
        renewable.restart_server()
        load.until_refused()
        trouble.mend(renewable)
        load.follow(5)
    load.check(renewable.history(prefix))


def test_a_connection_outlives_its_certificate_and_a_broken_one_needs_the_renewed_certificate(
    renewable: Renewable, prefix: str
) -> None:
    end = time.time() + SHORT_LIFE
    replace(renewable.agent, renewable.authority.sign("agent-2", seconds=end - time.time()))
    with Load(renewable.cluster, prefix, timeout=TIMEOUT, **renewable.files) as load:
        load.follow(5)
        until(lambda: time.time() > end)
        assert not renewable.lets_in(), "no new connection"
        load.follow(5)  # on the open one
        renewable.restart_server()
        load.until_refused()  # gRPC connects again, but with a certificate that has expired
        replace(renewable.agent, renewable.authority.sign("agent-3"))
        load.follow(5)
    load.check(renewable.history(prefix))


def test_certificates_that_cannot_be_read_again_are_logged_and_the_old_ones_kept(
    renewable: Renewable, prefix: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, "checkpointmanager")
    with Load(renewable.cluster, prefix, **renewable.files) as load:
        load.follow(5)
        renewable.agent.key.rename(renewable.agent.key.with_suffix(".kept"))
        renewable.restart_server()
        until(lambda: "agent.key: No such file or directory" in caplog.text)
        load.follow(5)
        renewable.agent.key.with_suffix(".kept").rename(renewable.agent.key)
    load.check(renewable.history(prefix))
