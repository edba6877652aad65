"""CDI files: whole, only our own, and valid by CDI's rules."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from draState import ClaimInvalid, Device
from draState.plugin import CdiFolder, PreparedDevice, device_edits
from draState.plugin import Device as OfferedDevice

from .cdirules import broken_rules

DRIVER = "gpu.example.com"
SHARE = "b7c8d9e0-0000-4000-8000-00000000000a"


@pytest.fixture
def folder(tmp_path: Path) -> CdiFolder:
    return CdiFolder(str(tmp_path / "cdi"), DRIVER)


def edits(
    uid: str, *names: str, share_id: str | None = None, env: dict[str, str] | None = None
) -> list[dict[str, object]]:
    offered = OfferedDevice("gpu", env=env or {}, device_nodes=("/dev/null",))
    return [device_edits(uid, PreparedDevice(Device("n", name, share_id)), offered) for name in names]


def content(folder: CdiFolder, uid: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((Path(folder.path) / f"{DRIVER}-device_{uid}.json").read_text())
    return found


def test_a_file_names_the_device_as_kubelet_will(folder: CdiFolder) -> None:
    folder.write("u1", edits("u1", "gpu-0", env={"GPU": "0"}))
    spec = content(folder, "u1")
    (device,) = spec["devices"]
    assert folder.device_id("u1", Device("n", "gpu-0")) == f"{spec['kind']}={device['name']}"
    assert device["containerEdits"] == {
        "env": ["DRA_DEVICE_GPU_0=gpu-0", "DRA_CLAIM_GPU_0=u1", "GPU=0"],
        "deviceNodes": [{"path": "/dev/null"}],
    }


def test_no_two_devices_of_a_container_have_a_variable_in_common() -> None:
    devices = [
        Device("n", "gpu-0"),
        Device("n", "gpu-0", "s1"),
        Device("n", "gpu-0", "s2"),
        Device("n", "gpu-1"),
        Device("n", "gpu-0", admin_access=True),
    ]
    names = [
        line.partition("=")[0]
        for device in devices
        for line in device_edits("u", PreparedDevice(device), OfferedDevice("gpu-0"))["containerEdits"]["env"]
    ]
    assert len(names) == len(set(names)) == 2 * len(devices)


def test_what_the_scheduler_decided_is_a_variable() -> None:
    result = {
        "device": "gpu-0",
        "consumedCapacity": {"memory": "4Gi"},
        "tolerations": [{"key": "example.com/ill", "operator": "Exists"}],
        "bindingConditions": [],
    }
    given = PreparedDevice(Device("n", "gpu-0", "s1"))
    lines = device_edits("u", given, OfferedDevice("gpu-0"), result)["containerEdits"]["env"]
    assert lines[2] == (
        'DRA_ALLOCATION_GPU_0_S1={"consumedCapacity":{"memory":"4Gi"},'
        '"tolerations":[{"key":"example.com/ill","operator":"Exists"}]}'
    )


@pytest.mark.parametrize("uid", ["a b", "-a", "a/b", ""])
def test_a_uid_that_cdi_would_not_accept_is_refused(folder: CdiFolder, uid: str) -> None:
    with pytest.raises(ClaimInvalid, match="CDI"):
        folder.device_id(uid, Device("n", "-" if not uid else "gpu-0"))


@pytest.mark.parametrize("text", ["", "{", "[]", '{"devices": [{}]}', '{"devices": 7}'])
def test_the_devices_of_a_file_are_used_only_if_it_can_be_read(folder: CdiFolder, text: str) -> None:
    folder.write("u1", edits("u1", "gpu-0", "gpu-1") + edits("u1", "shared", share_id=SHARE), {"vf": 3})
    assert broken_rules(content(folder, "u1")) == []
    shown = folder.shown("u1", lambda name: "q" if name == "shared" else "p")
    assert shown
    assert [device.identity for device in shown.devices] == [
        ("p", "gpu-0", None),
        ("p", "gpu-1", None),
        ("q", "shared", SHARE),
    ]
    assert [device.cdi_device_ids for device in shown.devices] == [
        (folder.device_id("u1", device),) for device in shown.devices
    ]
    assert shown.driver_data == {"devices": content(folder, "u1")["devices"], "data": {"vf": 3}}
    (Path(folder.path) / f"{DRIVER}-device_u1.json").write_text(text)
    assert folder.shown("u1", lambda _: "p") is folder.shown("none", lambda _: "p") is None


def test_a_failed_write_leaves_the_old_file_and_no_other(folder: CdiFolder) -> None:
    folder.write("u1", edits("u1", "gpu-0"))
    old = content(folder, "u1")
    with mock.patch("os.rename", side_effect=OSError), pytest.raises(OSError):
        folder.write("u1", edits("u1", "gpu-1"))
    assert content(folder, "u1") == old
    assert len(list(Path(folder.path).iterdir())) == 1


def test_sweeping_removes_what_it_is_told_and_copies_and_nothing_of_others(folder: CdiFolder) -> None:
    for uid in ("stays", "leftover"):
        folder.write(uid, edits(uid, "gpu-0"))
    folder.write("copy", edits("stays", "gpu-0"))
    foreign = Path(folder.path) / "other.example.com-device_u.json"
    foreign.write_text("{}")
    torn = Path(folder.path) / f".{DRIVER}-device_u.json.tmp"
    torn.write_text("{")

    assert folder.sweep(["leftover", "not-there"]) == {}

    assert folder.uids() == {"stays"}
    assert foreign.exists()
    assert not torn.exists()
