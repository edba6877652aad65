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
    WrongKind,
)
from draState import DeviceConfig, PodConfig

from .podconfigs import config_of, opened

DATA = Path(__file__).parent.parent / "data" / "draState"


def test_fields_of_a_newer_version_survive_every_change_and_keep_their_pod(directory: Path) -> None:
    device = {"config": 1, "claim_uid": "u", "claim_name": "n", "namespace": "ns", "color": "blue"}
    plain = {"devices": {"u/eth0": device, "v/eth1": {**device, "claim_uid": "v"}}, "config": None, "size": 7}
    newer: Schema[Any] = Schema("PodConfig", version=3, readable_by=2)
    with CheckpointManager(directory, newer) as manager:
        manager.create_checkpoint("pod-1", plain)

    with opened(directory) as store:
        store.set_device_config("pod-1", "eth2", config_of("w"))
        store.delete_claim("v")
        store.delete_claim("w")

        document = json.loads((directory / "pod-1.json").read_bytes())
        assert (document["version"], document["data"]["size"]) == (3, 7)
        assert document["data"]["devices"] == {"u/eth0": device}

        assert store.delete_claim("u") == ("pod-1",)
    assert json.loads((directory / "pod-1.json").read_bytes())["data"]["size"] == 7


STRANGERS = [
    (Schema("PodConfig", version=3), "newer program", ["pod-1"]),
    (Schema("PodConfig", version=2), "the file is whole", ["pod-1"]),
    (Schema("Other"), "'Other'", []),  # not even if its pod is gone
]


@pytest.mark.parametrize(("stranger", "why", "live"), STRANGERS, ids=["too new", "misfit", "another agent's"])
def test_a_whole_file_that_is_not_ours_is_a_problem_and_stays(
    directory: Path, stranger: Schema[Any], why: str, live: list[str]
) -> None:
    with CheckpointManager(directory, stranger) as manager:
        manager.create_checkpoint("pod-1", {"devices": "none"})
    before = (directory / "pod-1.json").read_bytes()

    with opened(directory) as store:
        assert why in store.problems["pod-1"]
        assert store.list_pods() == []
        if why != "the file is whole":
            with pytest.raises((CheckpointTooNew, WrongKind)):
                store.set_device_config("pod-1", "eth0", config_of())
        report = store.synchronize(lambda: live, complete=True)

    assert (report.removed, set(report.problems)) == ((), {"pod-1"})
    assert (directory / "pod-1.json").read_bytes() == before
    assert not (directory / ".quarantine").exists()


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
