"""A node in a folder: its root, kubeconfig, state, sockets, CDI folder; and drivers as real processes on it."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

from checkpointmanager import CheckpointManager

from ... import CLAIMS, ClaimInfoState
from .._settings import BOOT_ID_SWITCH
from .._sockets import MAX_PATH

LIMIT = 30.0  # seconds; only a failure takes this long
ROOM = 60  # bytes that names below the node's folder may need in the path of a socket
DRIVER, MOMENT, HOST = "REHEARSAL_DRIVER", "REHEARSAL_MOMENT", "HOST_ROOT"  # in the environment of a driver
SERVED = ("-m", "draState.plugin", "draState.plugin.rehearsal._mortal:Mortal")
_LISTENING = re.compile(r"listening on (http://[^\s\"]+)")


class NotReady(AssertionError):
    """A process did not become ready. Read the reason, and what it logged."""


class Node:
    """Everything that outlives a driver's process. A reboot means another boot_id, and an empty CDI folder and root.

    `served` is the driver, as module:Driver.
    """

    driver = ""  # its name, for those who call it
    pool = "node-1"  # and the name of the node

    def __init__(self, api_server: str, served: str = "", *, state: Path | None = None) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="dra-", dir=short_folder()))
        self.state = state or self.folder / "s"  # one file per claim
        self.cdi = self.folder / "cdi"  # what the runtime reads
        self.registry = str(self.folder / "r")  # where kubelet looks for plugins
        self.proc = self.folder / "proc"  # the processes that the agent can see
        (self.proc / "2").mkdir(parents=True)
        (self.proc / "2" / "comm").write_text("kthreadd\n")
        self.host = self.folder / "host"  # its root, in which a driver finds its hardware
        self.host.mkdir()
        self.moment = self.folder / "moment"  # of the next kill, such as "after set_up"; empty for none
        self.moment.touch()
        self.boot_id = "boot-1"
        self._environment = {DRIVER: served, MOMENT: str(self.moment), HOST: str(self.host)}
        self.write(
            "kubeconfig",
            {
                "current-context": "here",
                "contexts": [{"name": "here", "context": {"cluster": "here"}}],
                "clusters": [{"name": "here", "cluster": {"server": api_server}}],
            },
        )
        self._agents: list[AgentProcess] = []

    def start(self, *options: str, program: Sequence[str] = SERVED, wait: bool = True, pod: str = "") -> AgentProcess:
        """Start a separate process; with `wait`, return when it is ready. `pod` is the UID of its pod."""
        command = [sys.executable, *program, "--node", self.pool]
        command += ["--plugin-dir", str(self.folder / "p"), "--state-dir", str(self.state)]
        command += ["--registry-dir", self.registry, "--cdi-dir", str(self.cdi), "--http", "127.0.0.1:0"]
        command += ["--proc-dir", str(self.proc)]
        command += ["--kubeconfig", str(self.folder / "kubeconfig"), "--api-timeout", "2", *options]
        log = self.folder / f"log-{len(self._agents) + 1}"
        own = {BOOT_ID_SWITCH: self.boot_id, "POD_NAME": f"agent-{len(self._agents) + 1}", "POD_UID": pod}
        agent = AgentProcess(command, log, {**self._environment, **own})
        self._agents.append(agent)
        if wait:
            agent.wait_until_ready()
        return agent

    @contextmanager
    def container(self, uid: str) -> Iterator[subprocess.Popen[bytes]]:
        """A process in a container that got all devices of a claim, as the runtime reads its CDI file."""
        (file,) = self.cdi.glob(f"*_{uid}.json")
        edits = [device["containerEdits"] for device in json.loads(file.read_text())["devices"]]
        variables = dict(line.split("=", 1) for edit in edits for line in edit["env"])
        opened = [open(node["path"], "rb") for edit in edits for node in edit.get("deviceNodes", ())]  # noqa: SIM115
        process = subprocess.Popen(["sleep", "1000"], env=variables, pass_fds=[file.fileno() for file in opened])
        seen = self.proc / str(process.pid)
        seen.symlink_to(f"/proc/{process.pid}")
        try:
            yield process
        finally:
            process.kill()
            process.wait()
            seen.unlink()
            for each in opened:
                each.close()

    def reboot(self, boot_id: str) -> None:
        """Do what a reboot does to the node. No process may be running."""
        self.boot_id = boot_id
        shutil.rmtree(self.cdi, ignore_errors=True)
        shutil.rmtree(self.host)
        self.host.mkdir()

    def claims(self) -> dict[str, ClaimInfoState]:
        """The claims on disk now; damaged files are left out."""
        with CheckpointManager(self.state, CLAIMS, read_only=True) as manager:
            return {uid: checkpoint.data for uid, checkpoint in manager.load().checkpoints.items()}

    def holdings(self) -> dict[str, tuple[str, ...]]:
        """The names of each claim's devices, by claim UID, from disk."""
        return {uid: tuple(sorted(device for _, _, device in state.devices())) for uid, state in self.claims().items()}

    def cdi_holdings(self) -> dict[str, tuple[str, ...]]:
        """Like holdings, from the CDI files."""
        held = {}
        for path in self.cdi.glob("*.json"):
            names = [device["name"] for device in json.loads(path.read_text())["devices"]]
            uid = path.stem.partition("_")[2]
            held[uid] = tuple(sorted(name.removeprefix(f"{uid}-") for name in names))
        return held

    @property
    def log(self) -> str:
        """What the last process logged."""
        return self._agents[-1].log

    def file_of(self, uid: str) -> Path:
        """The file of a claim."""
        return self.state / f"{uid}.json"

    def write(self, name: str, content: object) -> None:
        """Write JSON into a file of the node's folder."""
        (self.folder / name).write_text(json.dumps(content))

    def close(self) -> None:
        """Kill all processes and remove the folder."""
        for agent in self._agents:
            agent.kill()
        shutil.rmtree(self.folder, ignore_errors=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


class AgentProcess:
    """One run of a driver, which logs to a file."""

    def __init__(self, command: Sequence[str], log: Path, environment: Mapping[str, str]) -> None:
        self._log = log
        with log.open("wb") as file:
            paths = {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}  # it finds the same packages as we do
            self._process = subprocess.Popen(command, stderr=file, env={**os.environ, **paths, **environment})
        self.pid = self._process.pid  # its process id

    @property
    def log(self) -> str:
        """What it has logged so far."""
        return self._log.read_text(errors="replace")

    @property
    def running(self) -> bool:
        """False once it has ended."""
        return self._process.poll() is None

    def get(self, path: str) -> tuple[int, str]:
        """Status and text of a page; status 0 if there is no answer."""
        listening = _LISTENING.search(self.log)
        if not listening:
            return 0, ""
        try:
            with urllib.request.urlopen(listening[1] + path, timeout=LIMIT) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()
        except OSError:
            return 0, ""

    def details(self) -> dict[str, Any]:
        """The content of /readyz."""
        text = self.get("/readyz")[1]
        found: dict[str, Any] = json.loads(text) if text else {}
        return found

    def wait_until_ready(self, phase: str = "") -> None:
        """Wait until /readyz reports ready and, if given, this phase."""
        end = time.monotonic() + LIMIT
        while not ((details := self.details()).get("ready") and phase in ("", details.get("phase"))):
            if not self.running or time.monotonic() > end:
                raise NotReady(f"the process did not become ready ({phase}): {details}\n{self.log}")
            time.sleep(0.01)

    def kill(self) -> None:
        """Send SIGKILL, which the agent cannot handle."""
        if self.running:
            self._process.send_signal(signal.SIGKILL)
        self._process.wait(LIMIT)

    def terminate(self) -> int:
        """Send SIGTERM and return the exit code."""
        self._process.terminate()
        return self._process.wait(LIMIT)


def short_folder() -> str:
    """The folder for temp folders that will have sockets below them: the usual one may be too deep."""
    usual = tempfile.gettempdir()
    return usual if len(os.fsencode(usual)) + ROOM < MAX_PATH else "/tmp"  # noqa: S108 - mkdtemp makes a private folder
