"""Credentials against a real TLS server: certificates, token files and names, as kubeconfigs have them."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pytest

from draState.plugin import ApiError, SettingsError, from_kubeconfig, in_cluster

from .kubeconfigs import SECRET, ask, asking, asking_as, encoded, written
from .tlsserver import NAME, Authority, TlsServer, needs_openssl

pytestmark = needs_openssl
EXEC = {"apiVersion": "client.authentication.k8s.io/v1", "command": "x"}


@pytest.mark.parametrize("form", ["yaml", "json"])
def test_a_token(folder: Path, server: TlsServer, form: str) -> None:
    client = asking(written(folder, server, {"token": "t"}, form=form))
    ask(client)
    ask(client)
    assert (server.seen, server.connections) == (["t", "t"], 1)


def test_a_server_of_another_authority_is_not_trusted(folder: Path, server: TlsServer, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    Authority(other)
    path = written(folder, server, {"token": SECRET}, {"certificate-authority": "other/ca.crt"})
    with pytest.raises(ApiError, match="certificate verify failed"):
        ask(asking(path))
    assert server.seen == []
    ask(asking(written(folder, server, {}, {"certificate-authority": "", "insecure-skip-tls-verify": True})))


def test_a_server_whose_certificate_is_for_another_name_is_named(folder: Path, authority: Authority) -> None:
    with TlsServer(authority, "named") as server:
        with pytest.raises(ApiError, match="certificate verify failed"):
            ask(asking(written(folder, server, {})))
        ask(asking(written(folder, server, {}, {"tls-server-name": NAME})))
        with pytest.raises(ApiError, match="certificate verify failed"):
            ask(asking(written(folder, server, {}, {"tls-server-name": "other.svc"})))


@pytest.mark.parametrize("as_data", [True, False])
def test_a_client_certificate(folder: Path, authority: Authority, as_data: bool) -> None:
    files = {"client-certificate": "client.crt", "client-key": "client.key"}
    data = {f"{name}-data": encoded(folder / file) for name, file in files.items()}
    with TlsServer(authority, mutual=True) as server:
        ask(asking(written(folder, server, data if as_data else files)))
        assert server.peers == ["client"]
        with pytest.raises(ApiError, match="the connection failed"):
            ask(asking(written(folder, server, {})))


def test_a_client_certificate_that_was_renewed_on_disk_is_used_when_the_old_one_is_refused(
    folder: Path, authority: Authority
) -> None:
    authority.issue("renewed", "DNS:renewed")
    with TlsServer(authority, mutual=True) as server:
        client = asking(written(folder, server, {"client-certificate": "client.crt", "client-key": "client.key"}))
        ask(client)
        for name in ("crt", "key"):
            (folder / f"client.{name}").write_bytes((authority.folder / f"renewed.{name}").read_bytes())
        ask(client)
        server.refused.add("")
        with pytest.raises(ApiError, match="401"):
            ask(client)
        assert server.peers == ["client", "client", "client", "renewed"]


@pytest.mark.parametrize("relative", [True, False])
def test_a_token_file_is_read_for_every_request(folder: Path, server: TlsServer, relative: bool) -> None:
    file = folder / "token"
    file.write_text("first\n")
    client = asking(written(folder, server, {"tokenFile": "token" if relative else str(file)}))
    ask(client)
    file.write_text("second\n")
    ask(client)
    assert (server.seen, server.connections) == (["first", "second"], 1)
    file.unlink()
    with pytest.raises(ApiError, match="token: No such file"):
        ask(client)


def test_a_context_without_a_user_sends_no_credentials(folder: Path, server: TlsServer) -> None:
    path = Path(written(folder, server, {}, form="json"))
    config = json.loads(path.read_text())
    del config["contexts"][0]["context"]["user"]
    path.write_text(json.dumps(config))
    ask(asking(str(path)))
    assert server.seen == [""]


def test_the_service_account_of_a_pod_and_its_renewed_token(
    folder: Path, server: TlsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "127.0.0.1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", str(server.port))
    (folder / "token").write_text("first")
    client = asking_as(in_cluster(str(folder)))
    ask(client)
    (folder / "token").write_text("second")
    ask(client)
    assert server.seen == ["first", "second"]
    (folder / "ca.crt").unlink()
    with pytest.raises(SettingsError, match=r"ca\.crt: .*; is the service account mounted\?"):
        in_cluster(str(folder))


@pytest.mark.parametrize(
    ("user", "why"),
    [
        ({"auth-provider": {"name": "x"}}, "user me: auth-provider is not supported; use a token, a certificate"),
        ({"exec": {**EXEC, "apiVersion": "client.authentication.k8s.io/v1alpha1"}}, "exec: apiVersion must be one of"),
        ({"exec": {**EXEC, "interactiveMode": "Always"}}, "needs a terminal"),
        ({"exec": {"apiVersion": EXEC["apiVersion"]}}, "'command' is missing"),
        ({"username": "x", "password": SECRET}, "username is not supported"),
        ({"token": "x", "as": "somebody"}, "as is not supported"),
        ({"client-certificate": "none.crt", "client-key": "none.key"}, r"none\.crt: No such file"),
        ({"client-certificate": "ca.crt", "client-key": "client.key"}, "kubeconfig: the certificates cannot be used"),
        ({"client-certificate-data": "!"}, "kubeconfig: "),
        ({"tokenFile": "none"}, "none: No such file"),
    ],
)
def test_what_cannot_work_is_refused_at_the_start(
    folder: Path, server: TlsServer, user: dict[str, Any], why: str
) -> None:
    with pytest.raises(SettingsError, match=why) as error:
        from_kubeconfig(written(folder, server, user))
    assert SECRET not in str(error.value)


@pytest.mark.parametrize("user", [{"token": "t"}, {"exec": EXEC}])
@pytest.mark.parametrize(
    ("cluster", "why"),
    [
        ({"certificate-authority": "none.crt"}, r"none\.crt: No such file"),
        ({"certificate-authority-data": base64.b64encode(b"no certificate").decode()}, "kubeconfig: .* cannot be used"),
        ({"proxy-url": "http://x"}, "proxy-url is not supported"),
    ],
)
def test_a_cluster_that_cannot_work_is_refused_too(
    folder: Path, server: TlsServer, user: dict[str, Any], cluster: dict[str, Any], why: str
) -> None:
    with pytest.raises(SettingsError, match=why):
        from_kubeconfig(written(folder, server, user, cluster))


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"current-context": "gone"}'])
def test_a_file_that_is_no_kubeconfig_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "config"
    path.write_text(text)
    with pytest.raises(SettingsError, match="config"):
        from_kubeconfig(str(path))


def test_outside_of_a_cluster_a_kubeconfig_is_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    with pytest.raises(SettingsError, match="kubeconfig"):
        in_cluster()


def test_a_server_without_tls_may_have_a_base_path(tmp_path: Path, server: TlsServer) -> None:
    found = from_kubeconfig(written(tmp_path, server, {"token": "t"}, {"server": "http://h:81/base/"}))
    assert (found.host, found.port, found.base, found.tls) == ("h", 81, "/base", None)


def test_a_kubeconfig_that_is_neither_yaml_nor_json_is_not_quoted(tmp_path: Path) -> None:
    path = tmp_path / "kubeconfig"
    path.write_text(f"users:\n- token: {{{SECRET}")
    with pytest.raises(SettingsError, match=r"kubeconfig: neither JSON nor YAML \(line 2\)") as error:
        from_kubeconfig(str(path))
    assert SECRET not in str(error.value)


def test_secrets_are_not_in_the_repr_of_credentials(folder: Path, server: TlsServer) -> None:
    found = from_kubeconfig(written(folder, server, {"token": SECRET}))
    assert SECRET not in repr(found)
