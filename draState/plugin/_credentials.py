"""Where the API server is, and how we prove our identity to it: from a kubeconfig, YAML or JSON, or from the service
account of a pod. Files are read when needed and not kept: tokens and certificates are renewed while the agent runs.
A program that the kubeconfig names (`exec`) may provide them too.
"""

from __future__ import annotations

import base64
import json
import os
import ssl
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

import yaml

from ._execplugin import CredentialsError, ExecCredential, ExecPlugin
from ._settings import SettingsError

SERVICE_ACCOUNT = "/var/run/secrets/kubernetes.io/serviceaccount"
EXTENSION = "client.authentication.k8s.io/exec"  # the extension of a cluster with its settings for exec plugins
UNSUPPORTED = ("auth-provider", "username", "as", "as-uid", "as-groups")  # ignoring them would change the identity

Pem = bytes | str  # the text itself, or the path of a file that contains it


@dataclass(frozen=True, slots=True)
class Tls:
    """How to verify the server, and our own certificate if we have one."""

    authority: Pem = b""  # the CA that signed the server's certificate; the system's CAs if empty
    certificate: Pem = b""
    key: Pem = field(default=b"", repr=False)
    server_name: str = ""  # the name in the server's certificate, if it is not the host's
    verify: bool = True


@dataclass(frozen=True, slots=True)
class Credentials:
    """Without `tls`, requests use plain HTTP. The token comes from its file, `token` or the plugin, in this order."""

    host: str  # of the API server
    port: int  # of the API server
    base: str = ""  # the beginning of every path
    tls: Tls | None = None
    token: str = field(default="", repr=False)
    token_file: str = ""  # read for every request
    plugin: ExecPlugin | None = None

    def current(self) -> ExecCredential:
        """The token or certificate to use now."""
        if self.token_file:
            return ExecCredential(_read(self.token_file).decode("ascii", "replace").strip())
        if self.token or not self.plugin:
            return ExecCredential(self.token)
        return self.plugin.credential()

    def renew(self, refused: ExecCredential) -> bool:
        """Call this when the server has refused the credential. True if a new connection may succeed."""
        if self.plugin:
            self.plugin.forget(refused)
        return self.plugin is not None or bool(self.tls and isinstance(self.tls.certificate, str))

    def context(self, shown: ExecCredential) -> ssl.SSLContext | None:
        """The TLS context of a new connection that uses `shown`, with the current content of the files."""
        if not self.tls:
            return None
        authority = _read(self.tls.authority)
        context = ssl.create_default_context(cadata=authority.decode("ascii", "replace") if authority else None)
        if not self.tls.verify:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        certificate = _read(self.tls.certificate) or shown.certificate
        key = _read(self.tls.key) or shown.key
        if certificate:
            with tempfile.NamedTemporaryFile() as file:  # ssl reads only files; it is 0600 and removed at once
                file.write(certificate + b"\n" + key)
                file.flush()
                context.load_cert_chain(file.name)
        return context


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
        name = context.get("user")
        user = _named(config, "users", name)["user"] if name else {}
        if unsupported := [member for member in UNSUPPORTED if user.get(member)]:
            listed = ", ".join(unsupported)
            raise ValueError(f"user {name}: {listed} is not supported; use a token, a certificate or exec")
        found = _credentials(folder, cluster, user)
    except (KeyError, TypeError, AttributeError) as error:
        missing = f"{error} is missing" if isinstance(error, KeyError) else str(error)
        raise SettingsError(f"{path}: not a usable kubeconfig: {missing}") from error
    except (ValueError, CredentialsError) as error:
        raise SettingsError(f"{path}: {error}") from error
    return _tried(found, path)


def _credentials(folder: str, cluster: Mapping[str, Any], user: Mapping[str, Any]) -> Credentials:
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
    names = ("server", "tls-server-name", "insecure-skip-tls-verify")
    info = {name: cluster[name] for name in names if cluster.get(name)}
    if authority := _read(_pem(folder, cluster, "certificate-authority")):
        info["certificate-authority-data"] = base64.b64encode(authority).decode()
    for each in cluster.get("extensions") or []:
        if each["name"] == EXTENSION:
            info["config"] = each["extension"]
    return info


def _tried(found: Credentials, where: str, hint: str = "") -> Credentials:
    """Report errors in files at the start. Runs no plugin, because a plugin may need a network."""
    try:
        found.context(ExecCredential() if found.plugin else found.current())
    except (CredentialsError, OSError, ValueError) as error:
        known = isinstance(error, CredentialsError)
        why = str(error) if known else f"{where}: the certificates cannot be used: {error}"
        raise SettingsError(f"{why}{hint}") from error
    return found


def _read(pem: Pem) -> bytes:
    if isinstance(pem, bytes):
        return pem
    try:
        with open(pem, "rb") as file:
            return file.read()
    except OSError as error:
        raise CredentialsError(f"{pem}: {error.strerror}") from error


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
