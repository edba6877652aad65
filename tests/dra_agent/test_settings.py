"""What is refused before anything starts, with a message that says where to look."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from dra_agent import cli
from dra_agent.settings import Inventory, SettingsError
from dra_agent.sockets import SocketServer


def inventory(tmp_path: Path, content: object) -> Inventory:
    path = tmp_path / "devices.json"
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return Inventory.read(str(path), "node-1")


def test_a_device_file_is_read(tmp_path: Path) -> None:
    devices = [{"name": "gpu-0", "env": {"A": 1}, "device_nodes": ["/dev/null"], "shared": True}, {"name": "gpu-1"}]
    read = inventory(tmp_path, {"driver": "gpu.example.com", "devices": devices})
    assert (read.driver, read.pool, sorted(read.devices)) == ("gpu.example.com", "node-1", ["gpu-0", "gpu-1"])
    assert (read.devices["gpu-0"].env, read.devices["gpu-0"].shared) == ({"A": "1"}, True)
    assert inventory(tmp_path, {"driver": "a.b", "pool": "p", "devices": []}).pool == "p"


@pytest.mark.parametrize(
    "content",
    [
        "no JSON",
        [],
        {"devices": []},
        {"driver": "Not A Name", "devices": []},
        {"driver": f"{'x' * 64}", "devices": []},
        {"driver": "a.b", "devices": [{}]},
        {"driver": "a.b", "devices": [{"name": "../x"}]},
        {"driver": "a.b", "devices": [{"name": "x", "device_nodes": "/dev/null"}]},
        {"driver": "a.b", "devices": [{"name": "x"}, {"name": "x"}]},
    ],
)
def test_a_wrong_device_file_is_refused_by_name(tmp_path: Path, content: object) -> None:
    with pytest.raises(SettingsError, match=r"devices\.json"):
        inventory(tmp_path, content)


def test_a_missing_device_file_ends_the_command_with_2(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["--node", "n", "--devices", str(tmp_path / "none.json")]) == 2
    assert "none.json" in capsys.readouterr().err


def test_the_node_must_be_known(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.delenv("NODE_NAME", raising=False)
    assert cli.main(["--devices", "x"]) == 2
    assert "NODE_NAME" in capsys.readouterr().err


def test_a_path_too_long_for_a_socket_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="107 bytes"):
        SocketServer(str(tmp_path / ("x" * 100) / "dra.sock"), {})
