"""Credential plugins: programs that a kubeconfig names, against a real TLS server and the rehearsal's API server."""

from __future__ import annotations

import json
import os
import sys
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml

from dra_agent.rehearsal import Node
from draState.plugin import ApiError, ApiServer
from draState.plugin.rehearsal import LocalApiServer

from .conversation import claim_for, devices_of, prepare, until
from .kubeconfigs import SECRET, ask, asking, encoded, written
from .tlsserver import Authority, TlsServer, needs_openssl

pytestmark = needs_openssl
GROUP = "client.authentication.k8s.io"
V1, V1BETA1 = f"{GROUP}/v1", f"{GROUP}/v1beta1"


class Plugin:
    """A program in the kubeconfig's folder. Each run returns another token: exec-1, exec-2, …"""

    def __init__(self, folder: Path, body: str = "", version: str = V1, **status: Any) -> None:
        self._runs = folder / "runs"
        program = folder / "plugin"
        program.write_text(
            # By way of a shell: the path of Python may have spaces or be too long for a first line.
            f"""#!/bin/sh
'''exec' "{sys.executable}" "$0" "$@"
' '''
import json, os, pathlib, subprocess, sys, time
here = pathlib.Path({str(folder)!r})
with (here / "runs").open("a") as file:
    file.write(json.dumps([sys.argv[1:], dict(os.environ)]) + "\\n")
version = {version!r}
status = {{"token": f"exec-{{len((here / 'runs').read_text().splitlines())}}", **{status!r}}}
{body}
print(json.dumps({{"apiVersion": version, "kind": "ExecCredential", "status": status}}))
"""
        )
        program.chmod(0o755)

    @property
    def runs(self) -> list[Any]:
        """The arguments and the environment of each run."""
        return [json.loads(line) for line in self._runs.read_text().splitlines()] if self._runs.exists() else []


def plugged(folder: Path, server: TlsServer, cluster: dict[str, Any] | None = None, **more: Any) -> ApiServer:
    command = {"apiVersion": V1, "command": "./plugin", "interactiveMode": "IfAvailable", **more}
    return asking(written(folder, server, {"exec": command}, cluster))


@pytest.mark.parametrize(
    ("version", "seconds", "tokens"),
    [
        (V1, 3600, ["exec-1", "exec-1"]),
        (V1BETA1, 3600, ["exec-1", "exec-1"]),
        (V1, -3600, ["exec-1", "exec-2"]),
        (V1, 5, ["exec-1", "exec-2"]),  # it would expire on the way
    ],
)
def test_a_plugin_is_run_again_when_its_credential_expires(
    folder: Path, server: TlsServer, version: str, seconds: int, tokens: list[str]
) -> None:
    expires = (datetime.now(UTC) + timedelta(seconds=seconds)).isoformat().replace("+00:00", "Z")
    plugin = Plugin(folder, version=version, expirationTimestamp=expires)
    client = plugged(folder, server, apiVersion=version)
    assert plugin.runs == [], "not at the start: it may need a network"
    ask(client)
    ask(client)
    assert server.seen == tokens


def test_a_credential_that_is_refused_is_renewed_once(folder: Path, server: TlsServer) -> None:
    plugin = Plugin(folder)
    client = plugged(folder, server)
    server.refused = {"exec-1"}
    ask(client)
    assert server.seen == ["exec-1", "exec-2"]
    server.refused = {"exec-2", "exec-3"}
    with pytest.raises(ApiError, match="401 no"):
        ask(client)
    assert len(plugin.runs) == 3


def test_a_plugin_that_gives_a_certificate(folder: Path, authority: Authority) -> None:
    names = {"clientCertificateData": "client.crt", "clientKeyData": "client.key"}
    Plugin(folder, token="", **{name: (folder / file).read_text() for name, file in names.items()})
    with TlsServer(authority, mutual=True) as server:
        ask(plugged(folder, server))
        assert (server.seen, server.peers) == ([""], ["client"])


def test_a_plugin_is_found_by_name_and_gets_arguments_and_the_cluster(
    folder: Path, server: TlsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    plugin = Plugin(folder)
    (folder / "bin").mkdir()
    (folder / "plugin").rename(folder / "bin" / "plugin")
    monkeypatch.setenv("PATH", f"{folder / 'bin'}{os.pathsep}{os.environ['PATH']}")
    extensions = [{"name": f"{GROUP}/exec", "extension": {"audience": "a"}}]
    own = {"args": ["--one", "two"], "env": [{"name": "OWN", "value": "1"}], "provideClusterInfo": True}
    ask(plugged(folder, server, {"extensions": extensions}, command="plugin", **own))
    ((arguments, environment),) = plugin.runs
    assert (arguments, environment["OWN"]) == (["--one", "two"], "1")
    authority = encoded(folder / "ca.crt")
    cluster = {"server": server.url, "certificate-authority-data": authority, "config": {"audience": "a"}}
    info = {"apiVersion": V1, "kind": "ExecCredential", "spec": {"interactive": False, "cluster": cluster}}
    assert json.loads(environment["KUBERNETES_EXEC_INFO"]) == info


@pytest.mark.parametrize(
    ("body", "why"),
    [
        ("sys.exit(3)", "exit code 3"),
        (f"print({SECRET!r}); sys.exit(0)", "not an ExecCredential"),
        ("print('{}'); sys.exit(0)", "not an ExecCredential"),
        ("status = {}", "neither a token nor a certificate"),
        ("status = {'clientCertificateData': 'x'}", "neither a token nor a certificate"),
        (f"status['expirationTimestamp'] = {SECRET!r}", "not an ExecCredential"),
        (f"version = {V1BETA1!r}", f"it did not answer in version {V1}"),
    ],
)
def test_a_plugin_that_fails_is_named_with_the_reason_and_without_data(
    folder: Path, server: TlsServer, body: str, why: str
) -> None:
    Plugin(folder, body)
    with pytest.raises(ApiError, match=rf"no credentials from {folder}/\./plugin: .*{why}") as error:
        ask(plugged(folder, server))
    assert error.value.status == 0
    assert SECRET not in str(error.value)


def test_a_plugin_that_is_not_there_says_how_to_install_it(folder: Path, server: TlsServer) -> None:
    with pytest.raises(ApiError, match="No such file or directory; get it from"):
        ask(plugged(folder, server, installHint="get it from example.com"))


def test_a_plugin_that_hangs_is_ended_with_all_that_it_has_started(
    folder: Path, server: TlsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its child has the pipe too, and reading would wait for the child."""
    monkeypatch.setattr("draState.plugin._execplugin.RUN_SECONDS", 2.0)
    Plugin(folder, "(here / 'child').write_text(str(subprocess.Popen(['sleep', '600']).pid)); time.sleep(600)")
    with pytest.raises(ApiError, match="no answer within 2 s"):
        ask(plugged(folder, server))
    until(lambda: is_gone(folder / "child"))


def is_gone(child: Path) -> bool:
    """Also true for a zombie, for which no process waits, and if the plugin was ended before it had a child."""
    try:
        return "Z (zombie)" in Path(f"/proc/{child.read_text()}/status").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return True


@pytest.mark.parametrize(("body", "most"), [("", 1), ("sys.exit(1)", 7)])
def test_threads_share_a_run_of_the_plugin(folder: Path, server: TlsServer, body: str, most: int) -> None:
    """Also if it fails: otherwise eight threads would wait for eight runs, one after another. One that asks after the
    failure starts a new run."""
    plugin = Plugin(folder, f"time.sleep(1); {body}")
    client = plugged(folder, server)

    def fails(_: int) -> bool:
        try:
            ask(client)
        except ApiError as error:
            return "exit code 1" in str(error)
        finally:
            client.close()
        return False

    with ThreadPoolExecutor(8) as threads:
        assert list(threads.map(fails, range(8))) == [bool(body)] * 8
    assert 1 <= len(plugin.runs) <= most


def test_an_agent_works_with_a_yaml_kubeconfig_and_a_plugin(cluster: LocalApiServer, node: Node) -> None:
    plugin = Plugin(node.folder)
    config = json.loads((node.folder / "kubeconfig").read_text())
    config["contexts"][0]["context"]["user"] = "me"
    command = {"apiVersion": V1, "command": "./plugin", "interactiveMode": "Never"}
    config["users"] = [{"name": "me", "user": {"exec": command}}]
    (node.folder / "kubeconfig").write_text(yaml.safe_dump(config))
    node.start()
    assert devices_of(prepare(node, claim_for(cluster, node, "u1", "gpu-0"))) == ["gpu-0"]
    until(lambda: len(cluster.slices()) == 1)
    assert len(plugin.runs) == 1
