"""Where the API server is and what proves who we are: a pod's service account, or a kubeconfig.

A kubeconfig is read as JSON, or as YAML if PyYAML is installed. Plugins that fetch credentials (exec,
auth-provider) are not run.
"""

from __future__ import annotations

import base64
import json
import os
import ssl
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from .inventory import SettingsError

SERVICE_ACCOUNT = "/var/run/secrets/kubernetes.io/serviceaccount"


@dataclass(frozen=True, slots=True)
class Credentials:
    """`token_file` is read again for every request: the kubelet rotates it. `context` is None for plain HTTP."""

    host: str
    port: int
    base: str = ""
    context: ssl.SSLContext | None = None
    token: str = ""
    token_file: str = ""

    def bearer(self) -> str:
        if not self.token_file:
            return self.token
        with open(self.token_file, encoding="ascii") as file:
            return file.read().strip()


def in_cluster(folder: str = SERVICE_ACCOUNT) -> Credentials:
    """What a pod finds in its environment and in its service account folder."""
    host, port = os.environ.get("KUBERNETES_SERVICE_HOST"), os.environ.get("KUBERNETES_SERVICE_PORT")
    if not host or not port:
        raise SettingsError("not in a cluster (KUBERNETES_SERVICE_HOST is not set) and no --kubeconfig given")
    try:
        context = ssl.create_default_context(cafile=os.path.join(folder, "ca.crt"))
    except OSError as error:
        raise SettingsError(f"{folder}/ca.crt: {error.strerror or error}; is the service account mounted?") from error
    return Credentials(host, int(port), context=context, token_file=os.path.join(folder, "token"))


def from_kubeconfig(path: str) -> Credentials:
    """The current context of a kubeconfig."""
    config = _parsed(path)
    try:
        context = _named(config, "contexts", config["current-context"])["context"]
        cluster = _named(config, "clusters", context["cluster"])["cluster"]
        user = _named(config, "users", context["user"])["user"] if context.get("user") else {}
        server = urlsplit(cluster["server"])
    except (KeyError, TypeError) as error:
        raise SettingsError(f"{path}: not a usable kubeconfig: {error} is missing") from error
    if unsupported := {"exec", "auth-provider", "username"} & user.keys():
        raise SettingsError(f"{path}: {', '.join(unsupported)} is not supported; use a token or a certificate")
    secure = server.scheme == "https"
    folder = os.path.dirname(os.path.abspath(path))
    return Credentials(
        server.hostname or "",
        server.port or (443 if secure else 80),
        server.path.rstrip("/"),
        _context(folder, cluster, user) if secure else None,
        user.get("token", ""),
        os.path.join(folder, user["tokenFile"]) if user.get("tokenFile") else "",
    )


def _parsed(path: str) -> Mapping[str, Any]:
    try:
        with open(path, encoding="utf-8") as file:
            text = file.read()
    except OSError as error:
        raise SettingsError(f"{path}: {error.strerror}") from error
    try:
        parsed = json.loads(text)
    except ValueError:
        parsed = _yaml(path, text)
    if not isinstance(parsed, dict):
        raise SettingsError(f"{path}: not a kubeconfig")
    return parsed


def _yaml(path: str, text: str) -> object:
    try:
        import yaml  # type: ignore[import-untyped, unused-ignore]  # noqa: PLC0415 - optional
    except ImportError:
        raise SettingsError(
            f"{path}: is not JSON, and PyYAML is not installed; try: kubectl config view --raw -o json"
        ) from None
    try:
        return yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise SettingsError(f"{path}: neither JSON nor YAML: {error}") from error


def _named(config: Mapping[str, Any], part: str, name: str) -> Mapping[str, Any]:
    for entry in config.get(part) or []:
        if entry["name"] == name:
            found: Mapping[str, Any] = entry
            return found
    raise KeyError(f"{part}/{name}")


def _context(folder: str, cluster: Mapping[str, Any], user: Mapping[str, Any]) -> ssl.SSLContext:
    authority = _bytes(folder, cluster, "certificate-authority")
    context = ssl.create_default_context(cadata=authority.decode() if authority else None)
    if cluster.get("insecure-skip-tls-verify"):
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    certificate, key = _bytes(folder, user, "client-certificate"), _bytes(folder, user, "client-key")
    if certificate and key:
        with tempfile.NamedTemporaryFile() as file:  # ssl takes them only from a file; it is 0600 and goes at once
            file.write(certificate + b"\n" + key)
            file.flush()
            context.load_cert_chain(file.name)
    return context


def _bytes(folder: str, entry: Mapping[str, Any], name: str) -> bytes:
    if data := entry.get(f"{name}-data"):
        return base64.b64decode(data)
    if not entry.get(name):
        return b""
    path = os.path.join(folder, entry[name])
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError as error:
        raise SettingsError(f"{path}: {error.strerror}") from error
