"""Credential plugins against a real TLS server."""

from __future__ import annotations

import json
import os
import sys
import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml

from draState.plugin._apiserver import execplugin
from draState.plugin._apiserver.client import ApiError, ApiServer
from draState.plugin.rehearsal import LocalApiServer, Node

from .conversation import claim_for, devices_of, prepare, until
from .kubeconfigs import SECRET, ask, asking, encoded, written
from .tlsserver import Authority, TlsServer, needs_openssl

pytestmark = needs_openssl
V1, V1BETA1 = execplugin.VERSIONS


class Plugin:
    """A program in the kubeconfig's folder. Each run returns another token: exec-1, exec-2, …"""

    def __init__(self, folder: Path, body: str = "", version: str = V1, **status: Any) -> None:
        self._folder = folder
        program = folder / "plugin"
        program.write_text(
            # By way of a shell: the path of Python may have spaces or be too long for a first line.
            f"""#!/bin/sh
'''exec' "{sys.executable}" "$0" "$@"
' '''
import json, os, pathlib, sys, time
here = pathlib.Path({str(folder)!r})
runs = here / "runs"
number = runs.stat().st_size + 1 if runs.exists() else 1
with runs.open("a") as file:
    file.write("x")
(here / "environment").write_text(json.dumps(dict(os.environ)))
(here / "arguments").write_text(json.dumps(sys.argv[1:]))
status = {{"token": f"exec-{{number}}", **{status!r}}}
{body}
print(json.dumps({{"apiVersion": {version!r}, "kind": "ExecCredential", "status": status}}))
"""
        )
        program.chmod(0o755)

    @property
    def runs(self) -> int:
        path = self._folder / "runs"
        return path.stat().st_size if path.exists() else 0

    def saw(self, what: str) -> Any:
        return json.loads((self._folder / what).read_text())


def plugged(folder: Path, server: TlsServer, cluster: dict[str, Any] | None = None, **more: Any) -> ApiServer:
    command = {"apiVersion": V1, "command": "./plugin", "interactiveMode": "IfAvailable", **more}
    return asking(written(folder, server, {"exec": command}, cluster))


@pytest.mark.parametrize("version", [V1, V1BETA1])
def test_a_plugin_is_run_once_while_its_credential_is_good(folder: Path, server: TlsServer, version: str) -> None:
    later = (datetime.now(UTC) + timedelta(hours=1)).isoformat().replace("+00:00", "Z")
    plugin = Plugin(folder, version=version, expirationTimestamp=later)
    client = plugged(folder, server, apiVersion=version)
    assert plugin.runs == 0, "not at the start: it may need a network"
    ask(client)
    ask(client)
    assert (server.seen, plugin.runs) == (["exec-1", "exec-1"], 1)


@pytest.mark.parametrize("seconds", [-3600, 5])
def test_a_credential_that_has_expired_or_will_at_once_is_renewed_before_it_is_refused(
    folder: Path, server: TlsServer, seconds: int
) -> None:
    plugin = Plugin(folder, expirationTimestamp=(datetime.now(UTC) + timedelta(seconds=seconds)).isoformat())
    client = plugged(folder, server)
    ask(client)
    ask(client)
    assert (server.seen, plugin.runs) == (["exec-1", "exec-2"], 2)


def test_a_credential_that_is_refused_is_renewed_once(folder: Path, server: TlsServer) -> None:
    plugin = Plugin(folder)
    client = plugged(folder, server)
    server.refused = {"exec-1"}
    ask(client)
    assert server.seen == ["exec-1", "exec-2"]
    server.refused = {"exec-2", "exec-3"}
    with pytest.raises(ApiError, match="401 no"):
        ask(client)
    assert plugin.runs == 3


def test_a_plugin_that_gives_a_certificate(folder: Path, authority: Authority) -> None:
    names = {"clientCertificateData": "client.crt", "clientKeyData": "client.key"}
    Plugin(folder, token="", **{name: (folder / file).read_text() for name, file in names.items()})
    with TlsServer(authority, mutual=True) as server:
        ask(plugged(folder, server))
        assert (server.seen, server.peers) == ([""], ["client"])


def test_the_environment_that_a_plugin_gets(folder: Path, server: TlsServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("INHERITED", "yes")
    plugin = Plugin(folder)
    extensions = [{"name": "client.authentication.k8s.io/exec", "extension": {"audience": "a"}}]
    client = plugged(
        folder,
        server,
        {"extensions": extensions},
        args=["--one", "two"],
        env=[{"name": "OWN", "value": "1"}],
        provideClusterInfo=True,
    )
    ask(client)
    environment = plugin.saw("environment")
    assert (environment["INHERITED"], environment["OWN"]) == ("yes", "1")
    assert plugin.saw("arguments") == ["--one", "two"]
    assert json.loads(environment["KUBERNETES_EXEC_INFO"]) == {
        "apiVersion": V1,
        "kind": "ExecCredential",
        "spec": {
            "interactive": False,
            "cluster": {
                "server": server.url,
                "certificate-authority-data": encoded(folder / "ca.crt"),
                "config": {"audience": "a"},
            },
        },
    }


def test_a_plugin_is_found_by_name(folder: Path, server: TlsServer, monkeypatch: pytest.MonkeyPatch) -> None:
    Plugin(folder)
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
    ask(plugged(folder, server, command="plugin"))


FAILURES: dict[str, tuple[str, str]] = {
    "an error": ("sys.exit(3)", "exit code 3"),
    "no JSON": (f"print({SECRET!r}); sys.exit(0)", "not an ExecCredential"),
    "no status": ("print('{}'); sys.exit(0)", "not an ExecCredential"),
    "nothing in it": ("status = {}", "neither a token nor a certificate"),
    "a certificate without a key": ("status = {'clientCertificateData': 'x'}", "neither a token nor a certificate"),
    "a wrong time": (f"status['expirationTimestamp'] = {SECRET!r}", "not an ExecCredential"),
}


@pytest.mark.parametrize("what", FAILURES)
def test_a_plugin_that_fails_is_named_with_the_reason_and_without_data(
    folder: Path, server: TlsServer, what: str
) -> None:
    body, why = FAILURES[what]
    Plugin(folder, body)
    with pytest.raises(ApiError, match=rf"no credentials from {folder}/\./plugin: .*{why}") as error:
        ask(plugged(folder, server))
    assert error.value.status == 0
    assert SECRET not in str(error.value)


def test_an_answer_in_another_version_is_refused(folder: Path, server: TlsServer) -> None:
    Plugin(folder, version=V1BETA1)
    with pytest.raises(ApiError, match="did not answer in version client"):
        ask(plugged(folder, server))


def test_a_plugin_that_is_not_there_says_how_to_install_it(folder: Path, server: TlsServer) -> None:
    with pytest.raises(ApiError, match="No such file or directory; get it from"):
        ask(plugged(folder, server, installHint="get it from example.com"))


def test_a_plugin_that_hangs_is_ended_with_all_that_it_has_started(
    folder: Path, server: TlsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its child has the pipe too, and reading would wait for the child."""
    monkeypatch.setattr(execplugin, "RUN_SECONDS", 1.0)
    body = "import subprocess; child = subprocess.Popen(['sleep', '600']); (here / 'pid').write_text(str(child.pid)); "
    Plugin(folder, body + "time.sleep(600)")
    with pytest.raises(ApiError, match="no answer within 1 s"):
        ask(plugged(folder, server))
    until(lambda: is_gone(int((folder / "pid").read_text())))


def is_gone(pid: int) -> bool:
    """Also true for a zombie, for which no process waits."""
    try:
        return "Z (zombie)" in Path(f"/proc/{pid}/status").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return True


@pytest.mark.parametrize("body", ["", "sys.exit(1)"])
def test_sixteen_threads_share_one_run_of_the_plugin(folder: Path, server: TlsServer, body: str) -> None:
    """Also if it fails: otherwise they would wait for sixteen runs, one after another."""
    plugin = Plugin(folder, f"time.sleep(1); {body}")
    client = plugged(folder, server)
    outcomes: list[str] = []
    barrier = threading.Barrier(16)

    def run() -> None:
        barrier.wait()
        for _ in range(1 if body else 5):
            try:
                ask(client)
                outcomes.append("")
            except ApiError as error:
                outcomes.append(str(error))
        client.close()

    threads = [threading.Thread(target=run) for _ in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert plugin.runs == 1
    assert len(outcomes) == (16 if body else 80)
    assert all(("exit code 1" in outcome) == bool(body) for outcome in outcomes)


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
    assert plugin.runs == 1
