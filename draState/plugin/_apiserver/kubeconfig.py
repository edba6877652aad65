"""Finds the API server and our credentials for it: in a kubeconfig, YAML or JSON, or in a pod's service account."""

from __future__ import annotations

import base64
import json
import os
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

import yaml

from .._settings import SettingsError
from .credentials import Credentials, Pem, Tls
from .execplugin import CredentialsError, ExecPlugin

SERVICE_ACCOUNT = "/var/run/secrets/kubernetes.io/serviceaccount"
EXTENSION = "client.authentication.k8s.io/exec"  # the extension of a cluster with its settings for exec plugins
UNSUPPORTED = ("auth-provider", "username", "as", "as-uid", "as-groups")  # ignoring them would change the identity


def in_cluster(folder: str = SERVICE_ACCOUNT) -> Credentials:
    """The credentials from a pod's environment and its service account folder."""
    host, port = os.environ.get("KUBERNETES_SERVICE_HOST"), os.environ.get("KUBERNETES_SERVICE_PORT")
    if not host or not port:
        raise SettingsError("not in a cluster (KUBERNETES_SERVICE_HOST is not set) and no --kubeconfig given")
    tls = Tls(os.path.join(folder, "ca.crt"))
    found = Credentials(host, int(port), tls=tls, token_file=os.path.join(folder, "token"))
    return _tried(found, folder, "; is the service account mounted?")


def from_kubeconfig(path: str) -> Credentials:
    """The credentials of the current context of a kubeconfig. Relative paths are relative to its folder."""
    config = _parsed(path)
    folder = os.path.dirname(os.path.abspath(path))
    try:
        context = _named(config, "contexts", config["current-context"])["context"]
        cluster = _named(config, "clusters", context["cluster"])["cluster"]
        user = _named(config, "users", context["user"])["user"] if context.get("user") else {}
        found = _credentials(folder, cluster, user)
    except (KeyError, TypeError, AttributeError) as error:
        missing = f"{error} is missing" if isinstance(error, KeyError) else str(error)
        raise SettingsError(f"{path}: not a usable kubeconfig: {missing}") from error
    except ValueError as error:
        raise SettingsError(f"{path}: {error}") from error
    return _tried(found, path)


def _credentials(folder: str, cluster: Mapping[str, Any], user: Mapping[str, Any]) -> Credentials:
    if unsupported := [name for name in UNSUPPORTED if user.get(name)]:
        raise ValueError(f"{', '.join(unsupported)} is not supported; use a token, a certificate or exec")
    if cluster.get("proxy-url"):
        raise ValueError("proxy-url is not supported")
    server = urlsplit(cluster["server"])
    secure = server.scheme == "https"
    return Credentials(
        server.hostname or "",
        server.port or (443 if secure else 80),
        server.path.rstrip("/"),
        _tls(folder, cluster, user) if secure else None,
        user.get("token") or "",
        os.path.join(folder, user["tokenFile"]) if user.get("tokenFile") else "",
        ExecPlugin(user["exec"], folder, _for_plugin(folder, cluster)) if user.get("exec") else None,
    )


def _tls(folder: str, cluster: Mapping[str, Any], user: Mapping[str, Any]) -> Tls:
    return Tls(
        _pem(folder, cluster, "certificate-authority"),
        _pem(folder, user, "client-certificate"),
        _pem(folder, user, "client-key"),
        cluster.get("tls-server-name") or "",
        not cluster.get("insecure-skip-tls-verify"),
    )


def _pem(folder: str, entry: Mapping[str, Any], name: str) -> Pem:
    if data := entry.get(f"{name}-data"):
        return base64.b64decode(data, validate=True)
    return os.path.join(folder, entry[name]) if entry.get(name) else b""


def _for_plugin(folder: str, cluster: Mapping[str, Any]) -> dict[str, Any]:
    """The cluster as KUBERNETES_EXEC_INFO has it: without paths, and with the extension for plugins."""
    names = ("server", "tls-server-name", "insecure-skip-tls-verify", "certificate-authority-data")
    info = {name: cluster[name] for name in names if cluster.get(name)}
    if cluster.get("certificate-authority"):
        with open(os.path.join(folder, cluster["certificate-authority"]), "rb") as file:
            info["certificate-authority-data"] = base64.b64encode(file.read()).decode()
    for each in cluster.get("extensions") or []:
        if each["name"] == EXTENSION:
            info["config"] = each["extension"]
    return info


def _tried(found: Credentials, where: str, hint: str = "") -> Credentials:
    """Report errors in files at the start. Runs no plugin, because a plugin may need a network."""
    try:
        if found.plugin is None:
            found.context(found.current())
    except (CredentialsError, OSError, ValueError) as error:
        known = isinstance(error, CredentialsError)
        why = str(error) if known else f"{where}: the certificates cannot be used: {error}"
        raise SettingsError(f"{why}{hint}") from error
    return found


def _parsed(path: str) -> Mapping[str, Any]:
    try:
        with open(path, encoding="utf-8") as file:
            text = file.read()
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(f"{path}: {getattr(error, 'strerror', None) or error}") from error
    try:
        parsed = json.loads(text)
    except ValueError:
        try:
            parsed = yaml.safe_load(text)
        except yaml.YAMLError as error:
            where = f" (line {mark.line + 1})" if (mark := getattr(error, "problem_mark", None)) else ""
            raise SettingsError(f"{path}: neither JSON nor YAML{where}") from None  # the error would quote the file
    if not isinstance(parsed, dict):
        raise SettingsError(f"{path}: not a kubeconfig")
    return parsed


def _named(config: Mapping[str, Any], part: str, name: str) -> Mapping[str, Any]:
    for entry in config.get(part) or []:
        if entry["name"] == name:
            found: Mapping[str, Any] = entry
            return found
    raise KeyError(f"{part}/{name}")
