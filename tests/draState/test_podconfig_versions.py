"""Files of pod configs that other programs wrote: newer ones, other agents', and those of every version so far."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from checkpointmanager import (
    CheckpointManager,
    CheckpointTooNew,
    Schema,
)
from draState import DeviceConfig, PodConfig

from .podconfigs import config_of, opened

DATA = Path(__file__).parent.parent / "data" / "draState"


def test_fields_of_a_newer_version_survive_every_change(directory: Path) -> None:
    device = {"config": 1, "claim_uid": "u", "claim_name": "n", "namespace": "ns", "color": "blue"}
    plain = {"devices": {"u/eth0": device, "v/eth1": {**device, "claim_uid": "v"}}, "config": None, "size": 7}
    newer: Schema[Any] = Schema("PodConfig", version=3, readable_by=2)
    with CheckpointManager(directory, newer) as manager:
        manager.create_checkpoint("pod-1", plain)

    with opened(directory) as store:
        store.set_pod_config("pod-1", "changed")
        store.set_device_config("pod-1", "eth2", config_of("w"))
        store.delete_claim("v")

    document = json.loads((directory / "pod-1.json").read_bytes())
    assert (document["version"], document["data"]["size"]) == (3, 7)
    assert document["data"]["devices"]["u/eth0"] == device
    assert document["data"]["devices"].keys() == {"u/eth0", "w/eth2"}


def test_a_pod_of_which_only_unknown_fields_are_left_is_not_deleted(directory: Path) -> None:
    device = {"config": 1, "claim_uid": "u", "claim_name": "n", "namespace": "ns"}
    newer: Schema[Any] = Schema("PodConfig", version=3, readable_by=2)
    with CheckpointManager(directory, newer) as manager:
        manager.create_checkpoint("pod-1", {"devices": {"u/eth0": device}, "config": None, "size": 7})

    with opened(directory) as store:
        assert store.delete_claim("u") == ("pod-1",)

    assert json.loads((directory / "pod-1.json").read_bytes())["data"]["size"] == 7


def test_a_file_that_is_too_new_is_not_served_nor_overwritten(directory: Path) -> None:
    newer: Schema[Any] = Schema("PodConfig", version=3)
    with CheckpointManager(directory, newer) as manager:
        manager.create_checkpoint("pod-1", {})
    before = (directory / "pod-1.json").read_bytes()

    with opened(directory) as store:
        assert "newer program" in store.problems["pod-1"]
        with pytest.raises(CheckpointTooNew):
            store.set_device_config("pod-1", "eth0", config_of())
        assert store.synchronize(lambda: ["pod-1"], complete=True).problems.keys() == {"pod-1"}

    assert (directory / "pod-1.json").read_bytes() == before


def test_another_agents_file_is_reported_and_never_removed(directory: Path) -> None:
    with CheckpointManager(directory, Schema("Other")) as manager:
        manager.create_checkpoint("theirs", {"a": 1})

    with opened(directory) as store:
        report = store.synchronize(list, complete=True)

    assert report.removed == ()
    assert "'Other'" in report.problems["theirs"]
    assert (directory / "theirs.json").exists()


@pytest.mark.parametrize("version", [1, 2])
def test_the_golden_files_load_and_the_last_is_what_would_be_written(directory: Path, version: int) -> None:
    directory.mkdir(mode=0o700)
    (directory / "pod-7.json").write_bytes((DATA / f"podconfig-v{version}.json").read_bytes())
    expected = PodConfig(
        {
            "0c9f3a52/eth0": DeviceConfig({"mtu": 9000, "routes": ["10.0.0.0/8"]}, "0c9f3a52", "fast-net", "ml"),
            "5d1e7b90/rdma0": DeviceConfig(None, "5d1e7b90", "fast-rdma", "ml"),
        },
        {"hostname": "trainer-0"},
    )

    with opened(directory) as store:
        assert store.get_pod_config("pod-7") == expected
        for key, device in expected.devices.items():
            store.set_device_config("pod-8", key.partition("/")[2], device)
        store.set_pod_config("pod-8", expected.config)

    written = json.loads((directory / "pod-8.json").read_bytes())
    assert written["data"] == json.loads((DATA / "podconfig-v2.json").read_bytes())["data"]
    assert (written["kind"], written["version"], written["readable_by"]) == ("PodConfig", 2, 2)
