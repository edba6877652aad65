"""Finds the processes that use a claim's devices, before the devices are given to somebody else.

A container got its devices when it was made, and keeps them until it ends, whatever kubelet and the API server say
since. Its processes have the variables that the claim's CDI file gave them, unless they changed their environment, and
may have opened its device nodes. The runtime keeps the container's spec, with the result of the CDI file, as long as
the container runs.
"""

from __future__ import annotations

import glob
import os
import re
import stat
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from .. import DRAError, DriverClaim
from ._driver import CLAIM_VARIABLE

GONE = (FileNotFoundError, ProcessLookupError, NotADirectoryError)  # the process has ended meanwhile
MEMORY = 1  # the major number of /dev/null and its like, which every process may have open
_POD = re.compile(r"pod([0-9a-f]{8}[-_][0-9a-f]{4}[-_][0-9a-f]{4}[-_][0-9a-f]{4}[-_][0-9a-f]{12})")
# Specs of running containers below the host's root, and the file beside each with the id of its first process.
SPECS = {
    "run/containerd/io.containerd.runtime.v2.task/*/*/config.json": "init.pid",
    "run/containers/storage/*-containers/*/userdata/config.json": "pidfile",  # CRI-O
}

Node = tuple[int, int]


class Processes:
    """The processes of the host, from its /proc."""

    def __init__(self, proc: str, host_root: str) -> None:
        self._proc = proc
        self._host_root = host_root.rstrip("/")

    def using(self, claim: DriverClaim, edits: Sequence[Mapping[str, Any]]) -> list[str]:
        """The processes that use the claim, for people. Raises DRAError if not all can be seen.

        `edits` are the devices of its CDI file.
        """
        if self._read("2/comm") != b"kthreadd\n":  # process 2 of the host; a container has none
            raise DRAError(f"{self._proc} does not show the host's processes (set hostPID)")
        nodes = self._nodes(claim, edits)
        containers = self._containers(claim.uid)
        entry = f"={claim.uid}".encode()
        found = []
        for pid in sorted((name for name in os.listdir(self._proc) if name.isdecimal()), key=int):
            try:
                lines = (self._read(f"{pid}/environ") or b"").split(b"\0")
                given = any(line.startswith(CLAIM_VARIABLE.encode()) and line.endswith(entry) for line in lines)
                if given or pid in containers or (nodes and nodes & self._open(pid)):
                    found.append(self._described(pid))
            except GONE:
                continue
            except OSError as error:
                raise DRAError(f"process {pid} cannot be looked at: {error.strerror} (add SYS_PTRACE)") from error
        return found

    def _containers(self, uid: str) -> set[str]:
        """The first process of each container whose spec has the claim; none where no runtime's specs can be read."""
        found = set()
        for pattern, pid_file in SPECS.items():
            for spec in glob.glob(f"1/root/{pattern}", root_dir=self._proc):
                if uid.encode() in (self._read(spec) or b""):
                    pid = self._read(os.path.join(os.path.dirname(spec), pid_file))
                    found.add((pid or b"").decode().strip())
        return found

    def _nodes(self, claim: DriverClaim, edits: Sequence[Mapping[str, Any]]) -> set[Node]:
        """The device nodes that only this claim's containers have; others may have opened those of a shared device."""
        if any(device.share_id or device.admin_access for device in claim.devices):
            return set()
        paths = [node["path"] for device in edits for node in device["containerEdits"].get("deviceNodes", ())]
        return set(_identities(self._host_root + path for path in paths))

    def _open(self, pid: str) -> set[Node]:
        folder = f"{self._proc}/{pid}/fd"
        return set(_identities(f"{folder}/{number}" for number in os.listdir(folder)))

    def _described(self, pid: str) -> str:
        name = (self._read(f"{pid}/comm") or b"?").decode(errors="replace").strip()
        pod = _POD.search((self._read(f"{pid}/cgroup") or b"").decode(errors="replace"))
        return f"pid {pid} ({name})" + (f" of pod {pod[1].replace('_', '-')}" if pod else "")

    def _read(self, name: str) -> bytes | None:
        with suppress(*GONE), open(f"{self._proc}/{name}", "rb") as file:
            return file.read()
        return None


def _identities(paths: Iterable[str]) -> Iterable[Node]:
    for path in paths:
        with suppress(*GONE):
            status = os.stat(path)
            if not stat.S_ISCHR(status.st_mode) and not stat.S_ISBLK(status.st_mode):
                yield status.st_dev, status.st_ino
            elif os.major(status.st_rdev) != MEMORY:
                yield -1 if stat.S_ISCHR(status.st_mode) else -2, status.st_rdev
