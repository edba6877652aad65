"""Pod configs: what is set is got, also after a restart; what is deleted is gone; what is ephemeral stays so."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pyfakefs.fake_filesystem import FakeFilesystem

from checkpointmanager import (
    CheckpointManager,
    CheckpointTooNew,
    DirectoryLocked,
    FileStore,
    InvalidKey,
    MemoryStore,
    Schema,
    UnstorableValue,
)
from draState import POD_CONFIGS, DeviceConfig, PodConfig, PodConfigStore, PodSyncReport

from .podconfigs import config_of, mtus, mtus_on_disk, opened
from .shapes import shape_of

DATA = Path(__file__).parent.parent / "data" / "draState"
NOON = datetime(2026, 11, 16, 12, tzinfo=UTC)


@pytest.fixture
def store(directory: Path) -> Iterator[PodConfigStore]:
    with opened(directory) as store:
        yield store


def test_what_is_set_is_got(store: PodConfigStore) -> None:
    store.set_device_config("pod-1", "eth0", config_of("claim-1", 9000))
    store.set_device_config("pod-1", "eth1", config_of("claim-2"))
    store.set_pod_config("pod-1", {"hostname": "a"})

    assert store.get_device_config("pod-1", "eth0") == config_of("claim-1", 9000)
    assert store.get_pod_config("pod-1") == PodConfig(
        {"eth0": config_of("claim-1", 9000), "eth1": config_of("claim-2")}, {"hostname": "a"}
    )


def test_what_was_never_set_is_none(store: PodConfigStore) -> None:
    store.set_device_config("pod-1", "eth0", config_of())

    assert store.get_device_config("pod-1", "eth1") is None
    assert store.get_device_config("pod-2", "eth0") is None
    assert store.get_pod_config("pod-2") is None
    assert "pod-2" not in store


def test_a_device_is_replaced_and_its_neighbours_stay(store: PodConfigStore) -> None:
    store.set_device_config("pod-1", "eth0", config_of(mtu=1))
    store.set_device_config("pod-1", "eth1", config_of(mtu=2))
    store.set_device_config("pod-1", "eth0", config_of(mtu=3))

    assert mtus(store) == {"pod-1": {"eth0": 3, "eth1": 2}}


@pytest.mark.parametrize("config", [None, 0, 1.5, "text", True, [], {}, [1, [None, {"a": "ü"}]]])
def test_a_config_is_any_json_value(config: Any, directory: Path) -> None:
    with opened(directory) as store:
        store.set_device_config("pod-1", "eth0", DeviceConfig(config, "u", "n", "ns"))
        store.set_pod_config("pod-1", config)

    with opened(directory) as store:
        found = store.get_pod_config("pod-1")
        assert found == PodConfig({"eth0": DeviceConfig(config, "u", "n", "ns")}, config)


def test_what_is_no_json_is_refused_and_nothing_changes(store: PodConfigStore, directory: Path) -> None:
    store.set_device_config("pod-1", "eth0", config_of())
    circle: list[Any] = []
    circle.append(circle)

    for bad in (object(), float("nan"), (1, 2), {1: "a"}, circle, "\ud800"):
        with pytest.raises(UnstorableValue):
            store.set_device_config("pod-1", "eth0", DeviceConfig(bad, "u", "n", "ns"))
        with pytest.raises(UnstorableValue):
            store.set_pod_config("pod-2", bad)

    assert mtus(store) == mtus_on_disk(directory) == {"pod-1": {"eth0": 1500}}


def test_a_pod_uid_that_cannot_name_a_file_is_refused(store: PodConfigStore) -> None:
    with pytest.raises(InvalidKey):
        store.set_device_config("../pod", "eth0", config_of())
    with pytest.raises(InvalidKey):
        store.delete_pod("../pod")

    assert store.list_pods() == []


def test_nobody_changes_memory_behind_the_disk(store: PodConfigStore, directory: Path) -> None:
    given = config_of()
    store.set_device_config("pod-1", "eth0", given)
    store.set_pod_config("pod-1", {"mtu": 1500})

    given.config["mtu"] = 1
    for got in (store.get_device_config("pod-1", "eth0"), store.get_pod_config("pod-1")):
        assert got is not None
        got.config["mtu"] = 2
        if isinstance(got, PodConfig):
            got.devices["eth0"].config["routes"].append("evil")
            got.devices.clear()

    assert store.get_pod_config("pod-1") == PodConfig({"eth0": config_of()}, {"mtu": 1500})
    assert mtus(store) == mtus_on_disk(directory)


def test_pods_are_listed_in_order(store: PodConfigStore) -> None:
    for pod in ("c", "a", "b"):
        store.set_device_config(pod, "eth0", config_of())

    assert store.list_pods() == list(store) == ["a", "b", "c"]
    assert len(store) == 3


def test_everything_durable_is_there_after_a_restart(directory: Path) -> None:
    with opened(directory) as store:
        store.set_device_config("pod-1", "eth0", config_of(mtu=1))
        store.set_pod_config("pod-2", {"hostname": "b"})
        store.set_device_config("pod-3", "eth0", config_of(mtu=3))
        store.delete_pod("pod-3")

    with opened(directory) as store:
        assert store.list_pods() == ["pod-1", "pod-2"]
        assert store.get_device_config("pod-1", "eth0") == config_of(mtu=1)
        assert store.get_pod_config("pod-2") == PodConfig({}, {"hostname": "b"})
        assert store.problems == {}


def test_a_pod_is_one_file(store: PodConfigStore, directory: Path) -> None:
    store.set_device_config("pod-1", "eth0", config_of())
    store.set_device_config("pod-1", "eth1", config_of())
    store.set_device_config("pod-2", "eth0", config_of())

    assert mtus_on_disk(directory) == {"pod-1": {"eth0": 1500, "eth1": 1500}, "pod-2": {"eth0": 1500}}


def test_the_config_of_a_pod_is_in_no_repr() -> None:
    assert "secret" not in repr(PodConfig({"eth0": DeviceConfig("secret", "u", "n", "ns")}, "secret"))


def test_deleting_a_pod_takes_its_file_and_its_ephemeral_state(store: PodConfigStore, directory: Path) -> None:
    store.set_device_config("pod-1", "eth0", config_of())
    store.set_network_namespace("pod-1", "/run/netns/a")

    store.delete_pod("pod-1")
    store.delete_pod("pod-1")

    assert store.list_pods() == []
    assert list(directory.glob("*pod-1*")) == []
    store.set_device_config("pod-1", "eth0", config_of())
    assert store.network_namespace("pod-1") == ""


@pytest.mark.parametrize("claim", ["claim-1", ("default", "name-of-claim-1")])
def test_deleting_a_claim_takes_its_devices_from_every_pod(
    claim: str | tuple[str, str], store: PodConfigStore, directory: Path
) -> None:
    store.set_device_config("pod-1", "eth0", config_of("claim-1"))
    store.set_device_config("pod-1", "eth1", config_of("claim-2", 2))
    store.set_device_config("pod-2", "eth0", config_of("claim-1"))
    store.set_device_config("pod-3", "eth0", config_of("claim-2", 3))
    store.set_device_config("pod-4", "eth0", config_of("claim-1"))
    store.set_pod_config("pod-4", {"hostname": "d"})

    assert store.delete_claim(claim) == ("pod-1", "pod-2", "pod-4")

    assert mtus(store) == mtus_on_disk(directory) == {"pod-1": {"eth1": 2}, "pod-3": {"eth0": 3}, "pod-4": {}}
    assert store.delete_claim(claim) == ()


def test_a_claim_of_the_same_name_with_another_uid_is_left_alone(store: PodConfigStore) -> None:
    store.set_device_config("pod-1", "eth0", DeviceConfig({}, "old", "c", "default"))
    store.set_device_config("pod-2", "eth0", DeviceConfig({}, "new", "c", "default"))
    store.set_device_config("pod-3", "eth0", DeviceConfig({}, "", "unnamed", "default"))

    assert store.delete_claim("old") == ("pod-1",)
    assert store.delete_claim("") == ()

    assert store.list_pods() == ["pod-2", "pod-3"]


def test_ephemeral_state_is_remembered_and_survives_a_set(store: PodConfigStore) -> None:
    store.set_device_config("pod-1", "eth0", config_of("claim-1"))
    store.note_activity("pod-1", NOON)
    store.set_network_namespace("pod-1", "/run/netns/a")
    store.set_device_config("pod-1", "eth1", config_of("claim-2"))
    store.delete_claim("claim-1")

    assert store.last_activity("pod-1") == NOON
    assert store.network_namespace("pod-1") == "/run/netns/a"


def test_activity_is_now_unless_it_is_said(store: PodConfigStore) -> None:
    store.set_device_config("pod-1", "eth0", config_of())
    before = datetime.now(UTC)

    store.note_activity("pod-1")

    activity = store.last_activity("pod-1")
    assert activity is not None
    assert before <= activity <= datetime.now(UTC)


def test_ephemeral_state_of_a_pod_that_is_not_here_is_not_kept(store: PodConfigStore) -> None:
    store.note_activity("stranger", NOON)
    store.set_network_namespace("stranger", "/run/netns/a")

    assert store.last_activity("stranger") is None
    assert store.network_namespace("stranger") == ""
    assert store.list_pods() == []


def test_ephemeral_state_never_reaches_the_disk(directory: Path) -> None:
    with opened(directory) as store:
        store.set_device_config("pod-1", "eth0", config_of(mtu=1))
        store.note_activity("pod-1", NOON)
        store.set_network_namespace("pod-1", "/run/netns/ephemeral")
        store.set_device_config("pod-1", "eth0", config_of(mtu=2))
        store.synchronize(["pod-1"])

    kept = b"".join(path.read_bytes() for path in directory.iterdir() if path.is_file())
    assert b"pod-1" in kept
    for word in (b"ephemeral", b"netns", b"network", b"activity", b"12:00"):
        assert word not in kept
    with opened(directory) as store:
        assert (store.last_activity("pod-1"), store.network_namespace("pod-1")) == (None, "")


def test_synchronize_removes_what_is_gone_and_reports_it(directory: Path) -> None:
    with opened(directory) as store:
        for pod in ("live", "gone", "gone-too"):
            store.set_device_config(pod, "eth0", config_of())

    with opened(directory) as store:
        report = store.synchronize(["live", "stranger"])

        assert report == PodSyncReport(removed=("gone", "gone-too"), kept=("live",), problems={}, failed={})
        assert store.list_pods() == ["live"]
    assert mtus_on_disk(directory) == {"live": {"eth0": 1500}}


def test_synchronize_with_nothing_to_do_writes_nothing(store: PodConfigStore, directory: Path) -> None:
    store.set_device_config("pod-1", "eth0", config_of())
    before = {path.name: path.stat().st_ino for path in directory.iterdir()}

    report = store.synchronize(["pod-1"])

    assert report == PodSyncReport((), ("pod-1",), {}, {})
    assert {path.name: path.stat().st_ino for path in directory.iterdir()} == before


def test_sharing_is_refused(directory: Path) -> None:
    with pytest.raises(ValueError, match="directory of their own"):
        PodConfigStore(directory, sharing=True)
    shared = FileStore(directory, sharing=True)
    with pytest.raises(ValueError, match="directory of their own"):
        PodConfigStore(shared)
    shared.close()


def test_a_second_store_is_refused_until_the_first_is_closed(real_directory: Path) -> None:
    with opened(real_directory), pytest.raises(DirectoryLocked):
        opened(real_directory)

    opened(real_directory).close()


def test_it_works_without_a_disk() -> None:
    memory = MemoryStore()
    PodConfigStore(memory).set_device_config("pod-1", "eth0", config_of())

    assert mtus(PodConfigStore(memory)) == {"pod-1": {"eth0": 1500}}


def test_fields_of_a_newer_version_survive_every_change(directory: Path) -> None:
    device = {"config": 1, "claim_uid": "u", "claim_name": "n", "namespace": "ns", "color": "blue"}
    plain = {"devices": {"eth0": device, "eth1": {**device, "claim_uid": "v"}}, "config": None, "size": 7}
    newer: Schema[Any] = Schema("PodConfig", version=2, readable_by=1)
    with CheckpointManager(directory, newer) as manager:
        manager.create_checkpoint("pod-1", plain)

    with opened(directory) as store:
        store.set_pod_config("pod-1", "changed")
        store.set_device_config("pod-1", "eth2", config_of("w"))
        store.delete_claim("v")

    document = json.loads((directory / "pod-1.json").read_bytes())
    assert (document["version"], document["data"]["size"]) == (2, 7)
    assert document["data"]["devices"]["eth0"] == device
    assert document["data"]["devices"].keys() == {"eth0", "eth2"}


def test_a_pod_of_which_only_unknown_fields_are_left_is_not_deleted(directory: Path) -> None:
    device = {"config": 1, "claim_uid": "u", "claim_name": "n", "namespace": "ns"}
    newer: Schema[Any] = Schema("PodConfig", version=2, readable_by=1)
    with CheckpointManager(directory, newer) as manager:
        manager.create_checkpoint("pod-1", {"devices": {"eth0": device}, "config": None, "size": 7})

    with opened(directory) as store:
        assert store.delete_claim("u") == ("pod-1",)

    assert json.loads((directory / "pod-1.json").read_bytes())["data"]["size"] == 7


def test_a_file_that_is_too_new_is_not_served_nor_overwritten(directory: Path) -> None:
    newer: Schema[Any] = Schema("PodConfig", version=2)
    with CheckpointManager(directory, newer) as manager:
        manager.create_checkpoint("pod-1", {})
    before = (directory / "pod-1.json").read_bytes()

    with opened(directory) as store:
        assert "newer program" in store.problems["pod-1"]
        with pytest.raises(CheckpointTooNew):
            store.set_device_config("pod-1", "eth0", config_of())
        assert store.synchronize(["pod-1"]).problems.keys() == {"pod-1"}

    assert (directory / "pod-1.json").read_bytes() == before


def test_another_agents_file_is_reported_and_never_removed(directory: Path) -> None:
    with CheckpointManager(directory, Schema("Other")) as manager:
        manager.create_checkpoint("theirs", {"a": 1})

    with opened(directory) as store:
        report = store.synchronize([])

    assert report.removed == ()
    assert "'Other'" in report.problems["theirs"]
    assert (directory / "theirs.json").exists()


def test_the_golden_file_loads_and_is_what_would_be_written(directory: Path, fs: FakeFilesystem) -> None:
    fs.add_real_directory(DATA)
    golden = (DATA / "podconfig-v1.json").read_bytes()
    directory.mkdir(mode=0o700)
    (directory / "pod-7.json").write_bytes(golden)
    expected = PodConfig(
        {
            "eth0": DeviceConfig({"mtu": 9000, "routes": ["10.0.0.0/8"]}, "0c9f3a52", "fast-net", "ml"),
            "rdma0": DeviceConfig(None, "5d1e7b90", "fast-rdma", "ml"),
        },
        {"hostname": "trainer-0"},
    )

    with opened(directory) as store:
        assert store.get_pod_config("pod-7") == expected
        for name, device in expected.devices.items():
            store.set_device_config("pod-8", name, device)
        store.set_pod_config("pod-8", expected.config)

    written = json.loads((directory / "pod-8.json").read_bytes())
    assert written["data"] == json.loads(golden)["data"]
    assert (written["kind"], written["version"], written["readable_by"]) == ("PodConfig", 1, 1)


def test_the_persisted_classes_are_those_of_the_baseline() -> None:
    present = {"kind": POD_CONFIGS.kind, "version": POD_CONFIGS.version, "classes": shape_of(PodConfig)}

    frozen = json.loads((DATA / "podconfig-baseline.json").read_text())

    assert present == frozen, "the persisted shape has changed: add a version to draState/podstate.py"


def test_reads_do_not_wait_for_a_writer(real_directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = opened(real_directory)
    store.set_device_config("pod-1", "eth0", config_of(mtu=1))
    inside, go_on = threading.Event(), threading.Event()
    real = os.fsync

    def waits(descriptor: int) -> None:
        inside.set()
        assert go_on.wait(20)
        real(descriptor)

    with ThreadPoolExecutor() as pool:
        monkeypatch.setattr(os, "fsync", waits)
        writing = pool.submit(store.set_device_config, "pod-1", "eth0", config_of(mtu=2))
        assert inside.wait(20)
        try:
            assert mtus(store) == {"pod-1": {"eth0": 1}}
            store.note_activity("pod-1", NOON)
            assert store.last_activity("pod-1") == NOON
            assert store.problems == {}
            assert not writing.done()
        finally:
            go_on.set()
        writing.result()
    assert mtus(store) == {"pod-1": {"eth0": 2}}
    assert store.last_activity("pod-1") == NOON
    store.close()


def test_threads_lose_nothing_of_each_other(real_directory: Path) -> None:
    store = opened(real_directory)
    rounds = 8

    def devices(number: int) -> None:
        for turn in range(rounds):
            for pod in ("pod-1", "pod-2"):
                store.set_device_config(pod, f"eth{number}", config_of(f"claim-{number}", turn))
                store.note_activity(pod)
            store.set_device_config(f"own-{number}", "eth0", config_of("passing"))
            store.delete_pod(f"own-{number}")

    def claims() -> None:
        for turn in range(rounds):
            store.set_device_config("pod-1", "passing", config_of("passing", turn))
            store.delete_claim("passing")
            store.synchronize(["pod-1", "pod-2", *(f"own-{number}" for number in range(4))])

    def reads() -> None:
        for _ in range(rounds * 20):
            for pod in store.list_pods():
                if found := store.get_pod_config(pod):
                    assert all(type(device.config["mtu"]) is int for device in found.devices.values())

    with ThreadPoolExecutor(8) as pool:
        for done in [*(pool.submit(devices, n) for n in range(4)), pool.submit(claims), pool.submit(reads)]:
            done.result()

    last = {f"eth{number}": rounds - 1 for number in range(4)}
    assert mtus(store) == mtus_on_disk(real_directory) == {"pod-1": last, "pod-2": last}
    store.close()


def test_a_pod_that_is_set_while_synchronize_runs_is_spared(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with opened(directory) as store:
        store.set_device_config("gone", "eth0", config_of())
        listed = store._manager.list_checkpoints

        def lists() -> list[str]:
            store.set_device_config("new", "eth0", config_of())
            return listed()

        monkeypatch.setattr(store._manager, "list_checkpoints", lists)

        assert store.synchronize([]) == PodSyncReport(("gone",), ("new",), {}, {})
        assert store.list_pods() == ["new"]
