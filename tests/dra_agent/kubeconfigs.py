"""Kubeconfigs for a real TLS server, and clients that use them."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import yaml

from draState.plugin import ApiServer, Credentials, from_kubeconfig

from .tlsserver import TlsServer

SECRET = "hunter2"


def written(
    folder: Path, server: TlsServer, user: dict[str, Any], cluster: dict[str, Any] | None = None, form: str = "yaml"
) -> str:
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "here",
        "contexts": [{"name": "here", "context": {"cluster": "c", "user": "me"}}],
        "clusters": [
            {"name": "c", "cluster": {"server": server.url, "certificate-authority": "ca.crt", **(cluster or {})}}
        ],
        "users": [{"name": "me", "user": user}],
    }
    path = folder / "kubeconfig"
    path.write_text(yaml.safe_dump(config) if form == "yaml" else json.dumps(config))
    return str(path)


_clients: list[ApiServer] = []


def asking(path: str) -> ApiServer:
    return asking_as(from_kubeconfig(path))


def asking_as(credentials: Credentials) -> ApiServer:
    _clients.append(ApiServer(credentials, 5))
    return _clients[-1]


def close_all() -> None:
    while _clients:
        _clients.pop().close()


def ask(client: ApiServer) -> None:
    assert client.claim("default", "c")["metadata"]["uid"] == "u"


def encoded(path: Path) -> str:
    return base64.b64encode(path.read_bytes()).decode()
