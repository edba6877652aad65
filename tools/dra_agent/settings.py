"""The settings of the agent: the folders, the devices, the API server."""

from __future__ import annotations

import os
from dataclasses import dataclass

from .inventory import InventoryFile


@dataclass(frozen=True, slots=True)
class Settings:
    """Paths are absolute. `boot_id` lets tests simulate reboots: None means the kernel's."""

    node: str
    devices: InventoryFile
    state: str
    plugin: str
    registry: str
    cdi: str
    host_root: str = "/"
    proc: str = "/proc"
    kubeconfig: str = ""
    api_timeout: float = 2.0
    release_orphans_after: float | None = None
    http: tuple[str, int] = ("127.0.0.1", 0)
    grace: float = 10.0
    boot_id: str | None = None
    owner: str = ""
    instance: str = ""  # in the names of the sockets, so that two agents may serve at once
    allow_insecure: bool = False

    @property
    def dra_socket(self) -> str:
        return os.path.join(self.plugin, f"dra{self._suffix}.sock")

    @property
    def pods(self) -> str:
        return os.path.join(self.plugin, "pods")

    @property
    def registration_socket(self) -> str:
        return os.path.join(self.registry, f"{self.devices.current.driver}{self._suffix}-reg.sock")

    @property
    def _suffix(self) -> str:
        return f"-{self.instance}" if self.instance else ""
