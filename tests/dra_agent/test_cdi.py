"""CDI files: whole, only our own, and equal to the cache."""

from __future__ import annotations

import json
from pathlib import Path
from unittest import mock

import pytest

from dra_agent.cdi import CdiFolder, agree
from dra_agent.settings import Inventory, OfferedDevice
from draState import ClaimInfoState, Device, DriverState

DRIVER = "gpu.example.com"
INVENTORY = Inventory(
    DRIVER, "node-1", {"gpu-0": OfferedDevice("gpu-0", env={"GPU": "0"}, device_nodes=("/dev/null",))}
)


@pytest.fixture
def folder(tmp_path: Path) -> CdiFolder:
    return CdiFolder(str(tmp_path / "cdi"), INVENTORY)


def state(uid: str, *devices: str, share_id: str | None = None) -> ClaimInfoState:
    driver = DriverState(tuple(Device("node-1", device, share_id) for device in devices))
    return ClaimInfoState(uid, "c", "default", driver_states={DRIVER: driver})


def test_a_file_names_the_device_as_kubelet_will(folder: CdiFolder) -> None:
    folder.write(state("u1", "gpu-0"))
    spec = json.loads(folder.read("u1") or b"")
    assert spec["kind"] == f"{DRIVER}/device"
    device = spec["devices"][0]
    assert folder.device_id("u1", "gpu-0", None) == f"{spec['kind']}={device['name']}"
    assert "GPU=0" in device["containerEdits"]["env"]
    assert device["containerEdits"]["deviceNodes"] == [{"path": "/dev/null"}]


@pytest.mark.parametrize("text", ["", "{", "[]", '{"devices": [{}]}', '{"devices": 7}'])
def test_what_a_file_says_is_believed_only_if_it_can_be_read(folder: CdiFolder, text: str) -> None:
    folder.write(state("u1", "gpu-0", "gpu-1"))
    assert folder.devices("u1") == ("gpu-0", "gpu-1")
    (Path(folder.path) / f"{DRIVER}-device_u1.json").write_text(text)
    assert folder.devices("u1") == folder.devices("none") == ()


def test_two_shares_of_a_device_have_two_names(folder: CdiFolder) -> None:
    assert folder.device_id("u", "gpu-0", "s1") != folder.device_id("u", "gpu-0", "s2")


def test_a_failed_write_leaves_the_old_file_and_no_other(folder: CdiFolder) -> None:
    folder.write(state("u1", "gpu-0"))
    old = folder.read("u1")
    with mock.patch("dra_agent.cdi.os.rename", side_effect=OSError), pytest.raises(OSError):
        folder.write(state("u1", "gpu-1"))
    assert folder.read("u1") == old
    assert len(list(Path(folder.path).iterdir())) == 1


def test_agreeing_writes_what_is_missing_or_different_and_removes_what_is_left_over(folder: CdiFolder) -> None:
    folder.write(state("stays", "gpu-0"))
    folder.write(state("different", "gpu-9"))
    folder.write(state("leftover", "gpu-0"))
    folder.write(state("damaged", "gpu-3"))
    foreign = Path(folder.path) / "other.example.com-device_u.json"
    foreign.write_text("{}")
    torn = Path(folder.path) / f".{DRIVER}-device_u.json.tmp"
    torn.write_text("{")
    wanted = [state("stays", "gpu-0"), state("different", "gpu-1"), state("missing", "gpu-2")]

    assert agree(folder, wanted, ["damaged"]) == {}

    assert folder.uids() == {"stays", "different", "missing", "damaged"}
    assert all(folder.read(claim.claim_uid) == folder.content(claim) for claim in wanted)
    assert foreign.exists()
    assert not torn.exists()


def test_a_file_that_cannot_be_written_is_told_and_costs_no_other(folder: CdiFolder) -> None:
    (Path(folder.path) / f"{DRIVER}-device_bad.json").mkdir()
    failures = agree(folder, [state("bad", "gpu-0"), state("good", "gpu-1")], [])
    assert failures.keys() == {"bad"}
    assert folder.read("good")
