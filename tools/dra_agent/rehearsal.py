"""A node for dra-agent, to be rehearsed on: draState.plugin.rehearsal has the rest."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from draState.plugin.rehearsal import AgentProcess
from draState.plugin.rehearsal import Node as NodeOfDriver


class Node(NodeOfDriver):
    """Offers these devices, or this many, in a devices.json."""

    driver = "gpu.example.com"

    def __init__(
        self, api_server: str, devices: int | Iterable[Mapping[str, Any]] = 8, *, state: Path | None = None
    ) -> None:
        super().__init__(api_server, state=state)
        offered = [{"name": f"gpu-{n}"} for n in range(devices)] if isinstance(devices, int) else list(devices)
        self.devices = [str(device["name"]) for device in offered]
        self.write("devices.json", {"driver": self.driver, "devices": offered})

    def start(
        self, *options: str, program: Sequence[str] = ("-m", "dra_agent"), wait: bool = True, pod: str = ""
    ) -> AgentProcess:
        """Start an agent as a separate process; with `wait`, return when it is ready. `pod` is the UID of its pod."""
        file = str(self.folder / "devices.json")
        return super().start("--devices", file, *options, program=program, wait=wait, pod=pod)
