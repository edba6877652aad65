"""Who uses an orphan: real processes under a /proc that shows only some. While there is one, nothing is released."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from dra_agent.rehearsal import Node
from draState.plugin import HeldClaims
from draState.plugin.rehearsal import Claim, LocalApiServer

from .conversation import prepare

UID = "0c9f3a52-1111-2222-3333-444444444444"
CONTAINERD = ("run/containerd/io.containerd.runtime.v2.task/k8s.io/4f1c", "init.pid")
CRI_O = ("run/containers/storage/overlay-containers/4f1c/userdata", "pidfile")
Release = Callable[[], str]


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalApiServer]:
    with LocalApiServer() as cluster:
        yield cluster


@pytest.fixture(scope="module")
def hardware(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A device node, which is a file here."""
    path = tmp_path_factory.mktemp("dev") / "gpu0"
    path.touch()
    return path


@pytest.fixture(scope="module")
def running(cluster: LocalApiServer, hardware: Path) -> Iterator[Node]:
    """One device is for sharing, one has /dev/null."""
    offered: list[dict[str, Any]] = [
        {"name": "gpu-0", "device_nodes": [str(hardware)]},
        {"name": "shared", "device_nodes": [str(hardware)], "shared": True},
        {"name": "null", "device_nodes": ["/dev/null"]},
    ]
    with Node(cluster.address, offered) as node:
        node.start()
        yield node


@pytest.fixture
def node(running: Node) -> Iterator[Node]:
    yield running
    with HeldClaims(socket(running)) as held:
        held.release(UID, force=True)
    for path in running.proc.iterdir():
        if path.name != "2":
            path.unlink() if path.is_symlink() else shutil.rmtree(path)


def socket(node: Node) -> str:
    return str(node.folder / "p" / "dra.sock")


def orphan(node: Node, cluster: LocalApiServer, device: str = "gpu-0", **result: Any) -> Release:
    """A claim that the API server has forgotten. Call the result to release it: it returns the error."""
    cluster.allocate(UID, "c", [device], driver=node.driver, pool=node.pool, **result)
    assert not prepare(node, Claim(UID, "c")).error
    cluster.forget_claim("c")

    def release() -> str:
        with HeldClaims(socket(node)) as held:
            held.list()  # looks for orphans
            return held.release(UID)

    return release


@pytest.fixture
def user(node: Node, hardware: Path) -> Iterator[int]:
    """A process that has opened the device node and has nothing in its environment."""
    program = "import sys, time; file = open(sys.argv[1]); print(flush=True); time.sleep(1000)"
    command = [sys.executable, "-c", program, str(hardware)]
    with subprocess.Popen(command, env={}, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE) as process:
        assert process.stdout
        process.stdout.readline()
        (node.proc / str(process.pid)).symlink_to(f"/proc/{process.pid}")
        yield process.pid
        process.kill()


def test_a_process_that_has_opened_the_device_node(node: Node, cluster: LocalApiServer, user: int) -> None:
    release = orphan(node, cluster)
    assert f"still used by pid {user} (" in release()
    (node.proc / str(user)).unlink()
    assert release() == ""


@pytest.mark.parametrize(
    ("device", "result"), [("shared", {"shareID": "s"}), ("gpu-0", {"adminAccess": True}), ("null", {})]
)
def test_a_device_node_that_others_may_open_shows_no_user(
    node: Node, cluster: LocalApiServer, user: int, device: str, result: dict[str, Any]
) -> None:
    assert orphan(node, cluster, device, **result)() == ""


def test_a_process_is_named_with_its_pod_and_one_that_ended_is_not(node: Node, cluster: LocalApiServer) -> None:
    for pid in ("7", "8"):
        (node.proc / pid).mkdir()
    seven = node.proc / "7"
    (seven / "comm").write_text("python3\n")
    (seven / "environ").write_bytes(f"A=b\0DRA_CLAIM_GPU_0={UID}\0".encode())
    (seven / "cgroup").write_text(f"0::/kubepods.slice/kubepods-pod{UID.replace('-', '_')}.slice/cri-1.scope\n")
    assert f"is still used by pid 7 (python3) of pod {UID};" in orphan(node, cluster)()


def test_a_process_that_cannot_be_looked_at_may_be_a_user(node: Node, cluster: LocalApiServer) -> None:
    (node.proc / "7" / "environ").mkdir(parents=True)  # an error for any user, unlike missing rights
    assert "process 7 cannot be looked at" in orphan(node, cluster)()


@pytest.mark.parametrize(("folder", "pid_file"), [CONTAINERD, CRI_O])
def test_a_container_whose_spec_has_the_claim_whatever_its_process_did_to_its_environment(
    node: Node, cluster: LocalApiServer, user: int, folder: str, pid_file: str
) -> None:
    release = orphan(node, cluster, "null")
    container = node.proc / "1" / "root" / folder
    container.mkdir(parents=True)
    (container / "config.json").write_text(json.dumps({"process": {"env": ["A=b", f"DRA_CLAIM_NULL={UID}"]}}))
    (container / pid_file).write_text(str(user))
    assert f"still used by pid {user} (" in release()
    (container / pid_file).write_text("4194305")  # it has ended, and the runtime has not noticed yet
    assert release() == ""
