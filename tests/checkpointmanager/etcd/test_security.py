"""Users and passwords: a wrong one is an error in time, with a reason, and never a lost change."""

from __future__ import annotations

import base64
import errno
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest

from checkpointmanager import CheckpointManager
from checkpointmanager.etcd import EtcdStore, EtcdUnavailable

from ..processes import until
from .client import Etcd
from .history import History
from .line import Broken, Line, Request
from .load import Load
from .servers import Cluster, any_etcd

TOKEN_SECONDS = 1


@pytest.fixture(scope="module")
def members_only(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A member with users root and agent; agent may read and write below /allowed. Authentication is still off."""
    cluster = Cluster(
        any_etcd(), tmp_path_factory.mktemp("members-only"), arguments=["--auth-token-ttl", str(TOKEN_SECONDS)]
    )
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
ROOT: dict[str, Any] = {"user": "root", "password": "root's secret"}


@contextmanager
def authentication(cluster: Cluster) -> Iterator[None]:
    """Switched on inside the block."""
    cluster.administer("auth/enable")
    try:
        yield
    finally:
        login = cluster.administer("auth/authenticate", name="root", password=ROOT["password"])
        cluster.administer("auth/disable", token=login["token"])


@pytest.fixture
def guests(members_only: Cluster) -> Iterator[Cluster]:
    """The same with authentication on."""
    with authentication(members_only):
        yield members_only


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
def test_a_user_who_is_not_allowed_gets_an_error_at_once(guests: Cluster, login: dict[str, Any], prefix: str) -> None:
    with pytest.raises(EtcdUnavailable) as refusal:
        EtcdStore(guests.endpoints, prefix, timeout=3600, **login)  # so the error does not come from waiting
    assert refusal.value.errno == errno.EACCES
    assert "secret" not in str(refusal.value)
    assert "guessed" not in str(refusal.value)


def test_an_owner_goes_on_when_authentication_is_switched_on_and_loses_nothing(members_only: Cluster) -> None:
    with Load(members_only, "/allowed/c", **AGENT) as load:
        load.follow(5)
        with authentication(members_only):
            load.follow(5)
            _change_password(members_only, AGENT["password"])  # the same as before; all tokens of the user end
            load.follow(5)
    load.check(History(members_only.etcd, "/allowed/c"))


def _token(cluster: Cluster) -> str:
    return str(cluster.administer("auth/authenticate", name="root", password=ROOT["password"])["token"])


def test_an_owner_goes_on_when_its_password_is_changed_and_its_file_as_well(guests: Cluster, tmp_path: Path) -> None:
    file = tmp_path / "password"
    file.write_text("agent's secret\n")
    store = EtcdStore(guests.endpoints, "/allowed/j", ttl=60, user="agent", password_file=file)
    with CheckpointManager[Any](store) as manager:
        manager.create_checkpoint("a", 1)
        try:
            _change_password(guests, "a new one")
            for text in (None, "agent's secret\n"):
                file.unlink() if text is None else file.write_text(text)
                with pytest.raises(EtcdUnavailable) as refusal:
                    manager.get_checkpoint("a")
                assert refusal.value.errno == errno.EACCES
                assert "secret" not in str(refusal.value)
            file.write_text("a new one\n")
            manager.create_checkpoint("a", 2)
            assert manager.get_checkpoint("a").data == 2
        finally:
            _change_password(guests, AGENT["password"])
            file.write_text(AGENT["password"])


def _change_password(cluster: Cluster, password: str) -> None:
    cluster.administer("auth/user/changepw", token=_token(cluster), name="agent", password=password)


def test_an_owner_goes_on_when_its_token_has_expired(guests: Cluster, line: Line) -> None:
    tokens: list[str] = []

    def note(request: Request) -> Any:
        tokens.append(request.token)
        return request.send()

    line.carry = note
    with CheckpointManager[Any](EtcdStore(guests.endpoints, "/allowed/e", ttl=60, **AGENT)) as manager:
        manager.create_checkpoint("a", 1)
        until(lambda: _has_expired(guests, tokens[0]))
        manager.create_checkpoint("a", 2)
        assert manager.get_checkpoint("a").data == 2
        writes = History(Etcd(guests.endpoints[0], token=_token(guests)), "/allowed/e").writes()
    assert [write.data for write in writes] == [1, 2]
    assert len({*tokens}) == 2


def _has_expired(cluster: Cluster, token: str) -> bool:
    time.sleep(2 * TOKEN_SECONDS)  # because each use renews it
    try:
        Etcd(cluster.endpoints[0], token=token).get("/allowed/e")
    except grpc.RpcError as error:
        return "invalid auth token" in (error.details() or "")
    return False


@pytest.mark.parametrize("logins", [2, 3])
def test_an_owner_logs_in_again_as_often_as_users_or_roles_were_changed_meanwhile(
    guests: Cluster, line: Line, logins: int
) -> None:
    tokens: list[str] = []

    def refuse_old_ones(request: Request) -> Any:
        if request.token not in tokens:
            tokens.append(request.token)
        if len(tokens) < logins:
            raise Broken(grpc.StatusCode.INVALID_ARGUMENT, "etcdserver: revision of auth store is old")
        return request.send()

    with CheckpointManager[Any](EtcdStore(guests.endpoints, f"/allowed/f{logins}", **AGENT)) as manager:
        line.carry = refuse_old_ones
        manager.create_checkpoint("a", 1)
        assert manager.get_checkpoint("a").data == 1


def test_an_owner_without_a_login_is_refused_while_authentication_is_on_and_loses_nothing(
    members_only: Cluster,
) -> None:
    with Load(members_only, "/allowed/d") as load:
        load.follow(5)
        with authentication(members_only):
            load.until_refused(errno.EACCES)
        load.follow(5)
    assert not load.doubts
    load.check(History(members_only.etcd, "/allowed/d"))


def test_no_text_shows_the_password(members_only: Cluster, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(0)
    with closing(EtcdStore(members_only.endpoints, "/allowed/i", **AGENT)) as store:
        shown = [repr(store), str(store), store.path, repr(vars(store)), repr(vars(store._client))]
    assert not any(AGENT["password"] in text for text in [*shown, caplog.text])
