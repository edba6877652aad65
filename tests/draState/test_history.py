"""Every shape that a claim's file has had still loads, and what a newer version adds survives this one."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from draState import ClaimInfo, ClaimInfoState, ClaimPhase, Device, DriverState, OpaqueConfig

from .claims import GPU, NIC, claim_of, pod_of
from .node import Node

GOLDEN = Path(__file__).parent.parent / "data" / "draState"
PODS = frozenset({"a3b1c2d4-0001-4000-8000-000000000001", "a3b1c2d4-0002-4000-8000-000000000002"})
ONE_DRIVER = ClaimInfoState(
    "0c9f3a52-6b1e-4b0e-9a55-1f2e3d4c5b6a",
    "training-gpus",
    "ml",
    PODS,
    {GPU: DriverState((Device("", "", cdi_device_ids=(f"{GPU}/gpu=gpu-0", f"{GPU}/gpu=gpu-1")),))},
)
OTHER_UID = "5d1e7b90-2c4a-4f6b-b8d3-9e0f1a2b3c4d"
UNFINISHED = ClaimInfoState(OTHER_UID, "late", "ml", PODS, {GPU: DriverState()})
UNTIL_3 = ClaimInfoState(
    OTHER_UID,
    "everything",
    "ml",
    PODS,
    {
        GPU: DriverState(
            (
                Device(
                    "node-7",
                    "gpu-0",
                    "b7c8d9e0-0000-4000-8000-00000000000a",
                    request_names=("gpu/large",),
                    cdi_device_ids=(f"{GPU}/gpu=gpu-0",),
                ),
                Device("node-7", "gpu-1"),
            )
        ),
        NIC: DriverState((), ("NodePrepareResources", "NodeRepaintResources")),
    },
)
EVERYTHING = replace(
    UNTIL_3,
    driver_states={
        **UNTIL_3.driver_states,
        GPU: DriverState(
            (
                Device(
                    "node-7",
                    "gpu-0",
                    "b7c8d9e0-0000-4000-8000-00000000000a",
                    request_names=("gpu",),
                    cdi_device_ids=(f"{GPU}/gpu=gpu-0",),
                    consumed_capacity={"memory": "4Gi"},
                ),
                Device("node-7", "gpu-1", admin_access=True),
            ),
            phase=ClaimPhase.UNPREPARING,
            configs=(OpaqueConfig({"mode": "shared"}, ("gpu",), from_class=True), OpaqueConfig(None)),
            driver_data={"partition": [7, None, "x"]},
        ),
    },
)
ADDED = {"claim": "blue", "driver": [1, 2], "device": {"state": "good"}}  # by the version 5 of v5-newer.json


def put_golden(name: str, directory: Path, uid: str) -> None:
    """A golden file under the name that its claim has in a directory."""
    directory.mkdir(mode=0o700)
    (directory / f"{uid}.json").write_bytes((GOLDEN / name).read_bytes())


@pytest.mark.parametrize(
    ("golden", "state"),
    [
        ("v1.json", ONE_DRIVER),
        ("v2.json", ONE_DRIVER),
        ("v3.json", ONE_DRIVER),
        ("v2-unfinished.json", UNFINISHED),
        ("v3-full.json", UNTIL_3),
        ("v4.json", ONE_DRIVER),
        ("v4-full.json", EVERYTHING),
    ],
)
def test_a_golden_file_loads_into_the_state_of_today(golden: str, state: ClaimInfoState, directory: Path) -> None:
    put_golden(golden, directory, state.claim_uid)

    node = Node(directory)

    claim = node.cache.get(state.claim_uid)
    node.stop()
    assert claim == ClaimInfo(state, from_this_boot=False)


@pytest.mark.parametrize("golden", ["v1.json", "v2.json", "v3.json", "v4.json"])
def test_an_older_file_changes_only_when_the_claim_does(golden: str, directory: Path) -> None:
    put_golden(golden, directory, ONE_DRIVER.claim_uid)
    before = (directory / f"{ONE_DRIVER.claim_uid}.json").read_bytes()
    node = Node(directory)
    assert node.file_of(ONE_DRIVER.claim_uid).read_bytes() == before

    node.cache.put(ClaimInfo(replace(ONE_DRIVER, pod_uids=frozenset({"pod"}))))

    written = json.loads(node.file_of(ONE_DRIVER.claim_uid).read_bytes())
    node.stop()
    assert (written["version"], written["generation"]) == (4, 3)
    assert written["data"]["pod_uids"] == ["pod"]


def test_a_file_of_the_present_holds_exactly_what_the_golden_one_does(directory: Path) -> None:
    node = Node(directory)

    node.cache.put(ClaimInfo(EVERYTHING))

    written = json.loads(node.file_of(OTHER_UID).read_bytes())
    golden = json.loads((GOLDEN / "v4-full.json").read_bytes())
    node.restart()
    claim = node.cache.get(OTHER_UID)
    node.stop()
    assert written["data"] == golden["data"]
    assert (written["kind"], written["version"], written["readable_by"]) == ("ClaimInfo", 4, 4)
    assert claim == ClaimInfo(EVERYTHING)


def test_a_force_deleted_claim_of_2023_is_unprepared_by_its_driver(directory: Path) -> None:
    put_golden("v2-unfinished.json", directory, OTHER_UID)
    node = Node(directory)

    node.manager.reconcile([], complete=True)

    node.stop()
    assert node.gpu.calls == [("unprepare", (OTHER_UID,))]
    assert node.nic.calls == []
    assert node.files() == []


def added(directory: Path) -> tuple[int, int, dict[str, Any]]:
    """The versions that the file states, and the added fields on each level."""
    document = json.loads((directory / f"{OTHER_UID}.json").read_bytes())
    data = document["data"]
    driver = data["driver_states"][GPU]
    found = {"claim": data["color"], "driver": driver["driver_version"], "device": driver["devices"][0]["health"]}
    return document["version"], document["readable_by"], found


def test_fields_of_a_newer_version_survive_every_change_of_the_cache(directory: Path) -> None:
    put_golden("v5-newer.json", directory, OTHER_UID)
    node = Node(directory)
    claim = claim_of(OTHER_UID, GPU, NIC, name="everything")
    claim = replace(claim, namespace="ml")
    first, second = pod_of("pod-1", claim), pod_of("pod-2", claim)

    node.manager.prepare_resources(first)
    assert added(directory) == (5, 4, ADDED), "after the driver answered with the same device"
    node.manager.prepare_resources(second)
    assert added(directory) == (5, 4, ADDED), "after a pod was added"
    node.manager.unprepare_resources(second)
    assert added(directory) == (5, 4, ADDED), "after a pod was removed"
    node.restart()
    node.manager.prepare_resources(second)
    assert added(directory) == (5, 4, ADDED), "after a restart"

    node.stop()
    state = node.on_disk()[OTHER_UID]
    assert state.pod_uids == {"a3b1c2d4-0001-4000-8000-000000000001", "pod-1", "pod-2"}
    assert state.driver_states.keys() == {GPU, NIC}


def test_a_device_that_is_another_one_does_not_inherit_fields(directory: Path) -> None:
    put_golden("v5-newer.json", directory, OTHER_UID)
    node = Node(directory)
    node.gpu.devices[OTHER_UID] = (Device("pool", "another"),)

    node.manager.prepare_resources(pod_of("pod-1", replace(claim_of(OTHER_UID, name="everything"), namespace="ml")))

    node.stop()
    document = json.loads(node.file_of(OTHER_UID).read_bytes())
    assert document["version"] == 5
    assert "health" not in document["data"]["driver_states"][GPU]["devices"][0]
