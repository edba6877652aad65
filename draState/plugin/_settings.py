"""Where a plugin finds kubelet, the container runtime and the API server, and where it keeps its state."""

from __future__ import annotations

import argparse
import os
from dataclasses import dataclass, field, fields

from .. import DRAError
from . import _grammar as grammar
from ._log import FORMATS
from ._sockets import MAX_PATH

BOOT_ID_SWITCH = "DRA_AGENT_BOOT_ID"  # for tests: replaces the kernel's boot id, so that a restart is a reboot
INSTANCE = 8  # characters of the pod's UID in the names of sockets, whose length is limited


class SettingsError(DRAError):
    """A plugin cannot start with these settings. The text says what to fix, and where."""


def _from_environment(name: str) -> str:
    return field(default_factory=lambda: os.environ.get(name, ""))


@dataclass(frozen=True, slots=True)
class Settings:
    """The defaults are those of a pod of a DaemonSet; each has an option of the same name (`add_options`)."""

    node: str = _from_environment("NODE_NAME")  # the name of this node
    kubelet_dir: str = "/var/lib/kubelet"  # kubelet's --root-dir
    plugin_dir: str = ""  # for dra.sock: KUBELET_DIR/plugins/DRIVER
    state_dir: str | None = None  # for claims: PLUGIN_DIR/claims; "" keeps nothing on disk
    registry_dir: str = ""  # where kubelet looks for plugins: KUBELET_DIR/plugins_registry
    cdi_dir: str = "/var/run/cdi"  # the runtime's
    host_root: str = "/"  # where the host's root is mounted, for device nodes
    proc_dir: str = "/proc"  # the host's, to see who uses a device
    kubeconfig: str = ""  # the pod's service account if empty
    api_timeout: float = 2.0  # seconds to wait for the API server
    release_orphans_after: float | None = None  # seconds; never if None
    http: str = "127.0.0.1:8080"  # /healthz, /readyz and /metrics
    grace: float = 10.0  # seconds for running calls at exit
    allow_insecure: bool = False  # accept a state directory that other users can write to
    pod_name: str = _from_environment("POD_NAME")  # shown as the owner of the state
    pod_uid: str = _from_environment("POD_UID")  # in the names of the sockets, so that two processes may serve at once
    boot_id: str = _from_environment(BOOT_ID_SWITCH)  # the kernel's if empty

    def __post_init__(self) -> None:
        if not self.node:
            raise SettingsError("the name of the node is not known: give --node, or set NODE_NAME in the environment")
        try:
            grammar.subdomain(self.node)
        except ValueError as error:
            raise SettingsError(f"--node: {error}") from error
        if not self.http.rpartition(":")[2].isdecimal():
            raise SettingsError(f"--http {self.http}: give it as address:port")

    @classmethod
    def of(cls, options: argparse.Namespace) -> Settings:
        """The settings from the options that `add_options` has added."""
        given = vars(options)
        return cls(**{each.name: given[each.name] for each in fields(cls) if each.name in given})

    @property
    def address(self) -> tuple[str, int]:
        """The address of the web page."""
        host, _, port = self.http.rpartition(":")
        return host.strip("[]") or "0.0.0.0", int(port)  # noqa: S104 - an empty address means all, as elsewhere

    def places(self, driver: str) -> Places:
        """The absolute paths of one driver's folders and sockets."""
        kubelet = os.path.abspath(self.kubelet_dir)
        plugin = os.path.abspath(self.plugin_dir or os.path.join(kubelet, "plugins", driver))
        registry = os.path.abspath(self.registry_dir or os.path.join(kubelet, "plugins_registry"))
        state = os.path.join(plugin, "claims") if self.state_dir is None else self.state_dir
        instance = f"-{self.pod_uid[:INSTANCE]}" if self.pod_uid else ""
        return Places(
            plugin=plugin,
            registry=registry,
            state=state and os.path.abspath(state),
            pods=os.path.join(plugin, "pods"),
            cdi=os.path.abspath(self.cdi_dir),
            dra_socket=_socket("--plugin-dir", plugin, f"dra{instance}.sock"),
            registration_socket=_socket("--registry-dir", registry, f"{driver}{instance}-reg.sock"),
        )


@dataclass(frozen=True, slots=True)
class Places:
    """Where one driver has what. `state` is empty if nothing is kept on disk."""

    plugin: str  # the folder of its socket
    registry: str  # the folder that kubelet watches
    state: str
    pods: str  # the folder of the pods' configs
    cdi: str  # the runtime's folder
    dra_socket: str  # where it answers kubelet's calls
    registration_socket: str  # where kubelet finds it


def _socket(option: str, folder: str, name: str) -> str:
    path = os.path.join(folder, name)
    if len(os.fsencode(path)) > MAX_PATH:
        raise SettingsError(f"{path}: the path of a socket has at most {MAX_PATH} bytes: choose a shorter {option}")
    return path


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add an option for each of the Settings that is not a pod's own, and those of the log."""
    defaults = {each.name: each.default for each in fields(Settings)} | {"node": os.environ.get("NODE_NAME", "")}
    for name, (metavar, text) in _OPTIONS.items():
        shown = "" if "default: " in text else " (default: %(default)s)"
        kind = float if metavar == "SECONDS" else str
        option = f"--{name.replace('_', '-')}"
        parser.add_argument(option, type=kind, default=defaults[name], metavar=metavar, help=text + shown)
    insecure = "accept a state directory that other users can write to"
    parser.add_argument("--allow-insecure", action="store_true", help=insecure)
    parser.add_argument("--log-level", default="info", choices=["debug", "info", "warning", "error"])
    parser.add_argument("--log-format", default="text", choices=FORMATS, help="json: one object per line")


_OPTIONS = {
    "node": ("NAME", "name of this node (default: $NODE_NAME)"),
    "kubelet_dir": ("DIR", "kubelet's --root-dir"),
    "plugin_dir": ("DIR", "folder for dra.sock (default: KUBELET_DIR/plugins/DRIVER)"),
    "state_dir": ("DIR", 'folder for claims (default: PLUGIN_DIR/claims; "" keeps nothing on disk)'),
    "registry_dir": ("DIR", "where kubelet looks for plugins (default: KUBELET_DIR/plugins_registry)"),
    "cdi_dir": ("DIR", "the runtime's CDI folder"),
    "host_root": ("DIR", "the host's root, for device nodes"),
    "proc_dir": ("DIR", "the host's /proc, to see who uses a device"),
    "kubeconfig": ("FILE", "credentials (default: the pod's service account)"),
    "api_timeout": ("SECONDS", "limit for the API server"),
    "release_orphans_after": ("SECONDS", "release orphaned claims this long after finding them (default: never)"),
    "http": ("ADDRESS:PORT", "/healthz, /readyz and /metrics"),
    "grace": ("SECONDS", "limit for running calls at exit"),
}
