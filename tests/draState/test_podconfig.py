"""Pod configs: get returns what was set, also after a restart; deleted ones are gone; ephemeral state is not stored."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from checkpointmanager import (
    DirectoryLocked,
    Event,
    EventKind,
    FileStore,
    InvalidKey,
    MemoryStore,
    UnstorableValue,
)
from draState import DeviceConfig, PodConfig, PodConfigStore, PodSyncReport

from .podconfigs import config_of, mtus, mtus_on_disk, opened

NOON = datetime(2026, 11, 16, 12, tzinfo=UTC)


@pytest.fixture
def store(directory: Path) -> Iterator[PodConfigStore]:
    with opened(directory) as store:
        yield store


def test_get_returns_what_was_set(store: PodConfigStore) -> None:
    store.set_device_config("pod-1", "eth0", config_of("claim-1", 9000))
    store.set_device_config("pod-1", "eth1", config_of("claim-2"))
    store.set_pod_config("pod-1", {"hostname": "a"})

    assert store.get_device_config("pod-1", "claim-1", "eth0") == config_of("claim-1", 9000)
    assert store.get_pod_config("pod-1") == PodConfig(
        {"claim-1/eth0": config_of("claim-1", 9000), "claim-2/eth1": config_of("claim-2")}, {"hostname": "a"}
    )


def test_what_was_never_set_is_none(store: PodConfigStore) -> None:
    store.set_device_config("pod-1", "eth0", config_of())

    assert store.get_device_config("pod-1", "claim-1", "eth1") is None
    assert store.get_device_config("pod-2", "claim-1", "eth0") is None
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
        assert found == PodConfig({"u/eth0": DeviceConfig(config, "u", "n", "ns")}, config)


def test_anything_but_json_is_refused_and_nothing_changes(store: PodConfigStore, directory: Path) -> None:
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
        store.set_device_config("", "eth0", config_of())
    with pytest.raises(InvalidKey):
        store.delete_pod("p" * 201)

    assert store.list_pods() == []


def test_no_caller_can_change_memory_without_the_disk(store: PodConfigStore, directory: Path) -> None:
    given = config_of()
    store.set_device_config("pod-1", "eth0", given)
    store.set_pod_config("pod-1", {"mtu": 1500})

    given.config["mtu"] = 1
    for got in (store.get_device_config("pod-1", "claim-1", "eth0"), store.get_pod_config("pod-1")):
        assert got is not None
        got.config["mtu"] = 2
        if isinstance(got, PodConfig):
            got.devices["claim-1/eth0"].config["routes"].append("evil")
            got.devices.clear()

    assert store.get_pod_config("pod-1") == PodConfig({"claim-1/eth0": config_of()}, {"mtu": 1500})
    assert mtus(store) == mtus_on_disk(directory)


def test_pods_are_listed_in_order(store: PodConfigStore) -> None:
    for pod in ("c", "a", "b"):
        store.set_device_config(pod, "eth0", config_of())

    assert store.list_pods() == list(store) == ["a", "b", "c"]
    assert len(store) == 3
    assert "a" in store
    assert "d" not in store


def test_everything_durable_is_there_after_a_restart(directory: Path) -> None:
    with opened(directory) as store:
        store.set_device_config("pod-1", "eth0", config_of(mtu=1))
        store.set_pod_config("pod-2", {"hostname": "b"})
        store.set_device_config("pod-3", "eth0", config_of(mtu=3))
        store.delete_pod("pod-3")

    with opened(directory) as store:
        assert store.list_pods() == ["pod-1", "pod-2"]
        assert store.get_device_config("pod-1", "claim-1", "eth0") == config_of(mtu=1)
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


def test_activity_is_now_unless_a_time_is_given(store: PodConfigStore) -> None:
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
        store.synchronize(lambda: ["pod-1"], complete=True)

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
        report = store.synchronize(lambda: ["live", "stranger"], complete=True)

        assert report == PodSyncReport(removed=("gone", "gone-too"), kept=("live",), problems={}, failed={})
        assert store.list_pods() == ["live"]
    assert mtus_on_disk(directory) == {"live": {"eth0": 1500}}


def test_synchronize_with_nothing_to_do_writes_nothing(store: PodConfigStore, directory: Path) -> None:
    store.set_device_config("pod-1", "eth0", config_of())
    before = {path.name: path.stat().st_ino for path in directory.iterdir()}

    report = store.synchronize(lambda: ["pod-1"], complete=True)

    assert report == PodSyncReport((), ("pod-1",), {}, {})
    assert {path.name: path.stat().st_ino for path in directory.iterdir()} == before


def test_sharing_is_refused(directory: Path) -> None:
    with pytest.raises(ValueError, match="the directory to itself"):
        PodConfigStore(directory, sharing=True)
    shared = FileStore(directory, sharing=True)
    with pytest.raises(ValueError, match="the directory to itself"):
        PodConfigStore(shared)
    shared.close()


def test_what_is_given_for_the_directory_reaches_it(directory: Path) -> None:
    events: list[Event] = []
    store = PodConfigStore(directory, on_event=events.append, boot_id="boot-7", owner="agent-7")
    store.set_device_config("pod-1", "eth0", config_of())
    assert json.loads((directory / "pod-1.json").read_bytes())["boot"] == "boot-7"
    assert json.loads((directory / ".lock").read_bytes())["owner"] == "agent-7"
    store.close()
    (directory / "pod-1.json").write_bytes(b"")

    PodConfigStore(directory, on_event=events.append).close()

    assert {event.key for event in events if event.kind is EventKind.DAMAGE} == {"pod-1"}


def test_a_second_store_is_refused_until_the_first_is_closed(real_directory: Path) -> None:
    with opened(real_directory), pytest.raises(DirectoryLocked):
        opened(real_directory)

    opened(real_directory).close()


def test_it_works_without_a_disk() -> None:
    memory = MemoryStore()
    PodConfigStore(memory).set_device_config("pod-1", "eth0", config_of())

    assert mtus(PodConfigStore(memory)) == {"pod-1": {"eth0": 1500}}
