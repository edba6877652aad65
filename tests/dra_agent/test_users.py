"""Which processes use a claim, from real processes under a /proc that shows only some."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from draState import Device, DRAError, DriverClaim
from draState.plugin import Device as OfferedDevice
from draState.plugin import PreparedDevice
from draState.plugin._cdi import device_edits
from draState.plugin._users import Processes

UID = "0c9f3a52-1111-2222-3333-444444444444"


@pytest.fixture
def proc(tmp_path: Path) -> Path:
    (tmp_path / "proc" / "2").mkdir(parents=True)
    (tmp_path / "proc" / "2" / "comm").write_text("kthreadd\n")
    return tmp_path / "proc"


def users(proc: Path, node: Path, **device: object) -> list[str]:
    """Who uses a claim whose device has this device node."""
    given = Device("p", "gpu-0", **device)  # type: ignore[arg-type]
    edits = device_edits(UID, PreparedDevice(given), OfferedDevice("gpu-0", device_nodes=(str(node),)))
    return Processes(str(proc), "/").using(DriverClaim(UID, "c", "ns", (given,)), [edits])


@pytest.fixture
def user(proc: Path, tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A process that has opened the device and has nothing in its environment."""
    (tmp_path / "gpu0").touch()
    program = "import sys, time; file = open(sys.argv[1]); print(flush=True); time.sleep(1000)"
    command = [sys.executable, "-c", program, str(tmp_path / "gpu0")]
    with subprocess.Popen(command, env={}, stdout=subprocess.PIPE) as process:
        assert process.stdout
        process.stdout.readline()
        (proc / str(process.pid)).symlink_to(f"/proc/{process.pid}")
        try:
            yield process
        finally:
            process.kill()


def test_a_process_that_has_opened_the_device_node_is_a_user(
    proc: Path, tmp_path: Path, user: subprocess.Popen[bytes]
) -> None:
    (found,) = users(proc, tmp_path / "gpu0")
    assert found.startswith(f"pid {user.pid} (")
    assert users(proc, tmp_path / "another") == []


@pytest.mark.parametrize("device", [{"share_id": "s"}, {"admin_access": True}])
def test_the_node_of_a_shared_device_shows_no_user_of_this_claim(
    proc: Path, tmp_path: Path, user: subprocess.Popen[bytes], device: dict[str, object]
) -> None:
    assert users(proc, tmp_path / "gpu0", **device) == []


def test_dev_null_has_no_users(proc: Path, user: subprocess.Popen[bytes]) -> None:
    with subprocess.Popen(["sleep", "1000"], env={}, stdin=subprocess.DEVNULL) as process:
        (proc / str(process.pid)).symlink_to(f"/proc/{process.pid}")
        found = users(proc, Path("/dev/null"))
        process.kill()
    assert found == []


def test_a_process_is_named_with_its_pod_and_one_that_ended_is_not(proc: Path, tmp_path: Path) -> None:
    for pid in ("7", "8"):
        (proc / pid).mkdir()
    (proc / "7" / "comm").write_text("python3\n")
    (proc / "7" / "environ").write_bytes(f"A=b\0DRA_CLAIM_GPU_0={UID}\0".encode())
    (proc / "7" / "cgroup").write_text(f"0::/kubepods.slice/kubepods-pod{UID.replace('-', '_')}.slice/cri-1.scope\n")
    assert users(proc, tmp_path / "none") == [f"pid 7 (python3) of pod {UID}"]


def test_a_process_that_cannot_be_looked_at_may_be_a_user(proc: Path, tmp_path: Path) -> None:
    (proc / "7" / "environ").mkdir(parents=True)  # an error for any user, unlike missing rights
    with pytest.raises(DRAError, match="process 7 cannot be looked at"):
        users(proc, tmp_path / "none")


@pytest.mark.parametrize(
    ("folder", "pid_file"),
    [
        ("run/containerd/io.containerd.runtime.v2.task/k8s.io/4f1c", "init.pid"),
        ("run/containers/storage/overlay-containers/4f1c/userdata", "pidfile"),
    ],
)
def test_a_container_whose_spec_has_the_claim_is_a_user_whatever_its_process_did_to_its_environment(
    proc: Path, tmp_path: Path, user: subprocess.Popen[bytes], folder: str, pid_file: str
) -> None:
    container = proc / "1" / "root" / folder
    container.mkdir(parents=True)
    (container / "config.json").write_text(json.dumps({"process": {"env": ["A=b", f"DRA_CLAIM_GPU_0={UID}"]}}))
    (container / pid_file).write_text(str(user.pid))
    (found,) = users(proc, tmp_path / "another")
    assert found.startswith(f"pid {user.pid} (")
    (container / pid_file).write_text("4194305")  # it has ended, and the runtime has not noticed yet
    assert users(proc, tmp_path / "another") == []
