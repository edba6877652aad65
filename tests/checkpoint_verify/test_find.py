"""--find: where on a node there is state, and whether it is good."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from checkpoint_verify.findings import search as searching
from checkpointmanager.testing import damage

from .command import NOBODY, called
from .kubelet.test_nvidia import written as nvidia
from .kubelet.vectors import blob_of
from .state import make


@pytest.fixture
def node(tmp_path: Path) -> Path:
    """A /var/lib with state in four places, and much other content."""
    lib = tmp_path / "lib"
    kubelet = lib / "kubelet"
    (kubelet / "device-plugins").mkdir(parents=True)
    (kubelet / "cpu_manager_state").write_bytes(blob_of("cpu_manager_state/v4-several"))
    (kubelet / "device-plugins" / "kubelet_internal_checkpoint").write_bytes(blob_of("kubelet_internal_checkpoint/one"))
    (kubelet / "plugins" / "gpu.nvidia.com").mkdir(parents=True)
    (kubelet / "plugins" / "gpu.nvidia.com" / "checkpoint.json").write_text(nvidia())
    make(lib / "agent" / "claims")
    make(lib / "deep" / "er" / "still" / "claims")
    for other in ("dpkg", "docker/overlay2/abc/diff/var/lib/agent", "empty", "web"):
        (lib / other).mkdir(parents=True)
    (lib / "dpkg" / ".lock").write_text("")
    (lib / "web" / "package.json").write_text('{"checksum":"sha256:12","name":"x"}')
    make(lib / "docker" / "overlay2" / "abc" / "claims")
    (lib / "link").symlink_to(lib / "agent")
    return lib


def places(node: Path) -> list[str]:
    return [os.path.relpath(row["path"], node) for row in called("--find", "--json", node).document["paths"]]


def test_every_place_with_state_is_found_once_and_nothing_else(node: Path) -> None:
    ended = called("--find", node)

    assert ended.code == 0
    assert ended.lines[0] == "GOOD: 11 state files in 4 places"
    assert places(node) == ["agent/claims", "deep/er/still/claims", "kubelet", "kubelet/plugins/gpu.nvidia.com"]
    assert ended.lines[-1].endswith("1 folder of image layers skipped)")
    assert called("--find", "--json", node).document["searches"] == [
        {
            "path": str(node),
            "directories": 14,
            "found": 4,
            "unreadable": 0,
            "left_out": {"mounts": 0, "image_layers": 1},
        }
    ]


@pytest.mark.parametrize("name", [".lock", ".previous-claim-0", "claim-0.json"])
def test_one_sign_is_enough(node: Path, name: str) -> None:
    claims = node / "agent" / "claims"
    for path in claims.iterdir():
        if path.name != name:
            path.unlink()

    assert "agent/claims" in places(node)


def test_damage_in_any_place_is_found_and_reported(node: Path) -> None:
    damage.flip_bit(node / "deep" / "er" / "still" / "claims", "claim-1")

    ended = called("--find", node)

    assert ended.code == 1
    assert "DAMAGED: 1 of 11 state files in 4 places" in ended.lines[0]
    assert sum(line.startswith("damaged: ") for line in ended.lines) == 1


def test_the_directory_itself_may_be_one(directory: Path) -> None:
    assert called("--find", directory).lines[0].startswith("GOOD: 4 checkpoints in ")


def test_nothing_found_is_not_good(tmp_path: Path) -> None:
    (tmp_path / "a" / "b").mkdir(parents=True)

    ended = called("--find", tmp_path)

    assert ended.code == 3
    assert ended.lines[0].startswith("NOTHING FOUND: ")
    assert "searched 3 directories" in ended.lines[-1]
    assert called("--find", tmp_path / "nowhere").code == 3


def test_what_cannot_be_entered_is_counted_and_ends_with_3(reachable_directory: Path) -> None:
    above = reachable_directory.parent
    for name in ("one", "two"):
        (above / name).mkdir(mode=0o700)
    reachable_directory.chmod(0o755)
    for path in reachable_directory.iterdir():
        path.chmod(0o644)

    ended = called("--find", above, user=NOBODY)

    assert ended.code == 3
    assert "2 directories could not be entered, such as " in ended.out
    assert f"{reachable_directory} " in ended.out
    assert "run this as root" in ended.out


def test_mounts_other_than_of_local_disks_are_not_touched(node: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    dead, disk = str(node / "deep" / "er"), str(node / "agent")
    monkeypatch.setattr(searching, "mounts_below", lambda _: {dead: "nfs4", disk: "xfs"})

    ended = called("--find", node)

    assert places(node) == ["agent/claims", "kubelet", "kubelet/plugins/gpu.nvidia.com"]
    assert f"1 mount other than local disks skipped ({dead})" in ended.out
