"""Pod configs: get returns what was set, also after a restart; deleted ones are gone; ephemeral state is not stored."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from checkpointmanager import MemoryStore, RetainRefused, UnstorableValue
from draState import (
    ClaimInfo,
    ClaimInfoCache,
    ClaimInfoState,
    DeviceConfig,
    DriverClaim,
    PodConfig,
    PodConfigStore,
    PodSyncReport,
    ReconcileRefused,
)
from draState.aio import AsyncPodConfigStore

from .podconfigs import config_of, mtus, mtus_on_disk, opened

NOON = datetime(2026, 11, 16, 12, tzinfo=UTC)


@pytest.fixture
def store(directory: Path) -> Iterator[PodConfigStore]:
    with opened(directory) as store:
        yield store


def test_get_returns_what_was_set_and_none_for_what_was_not(store: PodConfigStore) -> None:
    store.set_device_config("pod-1", "eth0", config_of("claim-1", 1))
    store.set_device_config("pod-1", "eth1", config_of("claim-2"))
    store.set_device_config("pod-1", "eth0", config_of("claim-1", 9000))
    store.set_pod_config("pod-1", {"hostname": "a"})

    assert store.get_device_config("pod-1", "claim-1", "eth0") == config_of("claim-1", 9000)
    assert store.get_pod_config("pod-1") == PodConfig(
        {"claim-1/eth0": config_of("claim-1", 9000), "claim-2/eth1": config_of("claim-2")}, {"hostname": "a"}
    )
    assert store.get_device_config("pod-1", "claim-1", "eth1") is None
    assert store.get_device_config("pod-2", "claim-1", "eth0") is None
    assert store.get_pod_config("pod-2") is None


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


def test_everything_durable_is_there_after_a_restart_in_order(directory: Path) -> None:
    with opened(directory) as store:
        store.set_pod_config("pod-2", {"hostname": "b"})
        store.set_device_config("pod-1", "eth0", config_of(mtu=1))
        store.set_device_config("pod-3", "eth0", config_of(mtu=3))
        store.delete_pod("pod-3")

    with opened(directory) as store:
        assert store.list_pods() == list(store) == ["pod-1", "pod-2"]
        assert ("pod-1" in store, "pod-3" in store, len(store)) == (True, False, 2)
        assert store.get_device_config("pod-1", "claim-1", "eth0") == config_of(mtu=1)
        assert store.get_pod_config("pod-2") == PodConfig({}, {"hostname": "b"})
        assert store.problems == {}


def test_the_config_of_a_pod_is_in_no_repr() -> None:
    assert "secret" not in repr(PodConfig({"eth0": DeviceConfig("secret", "u", "n", "ns")}, "secret"))


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


# Ephemeral state


def test_ephemeral_state_is_remembered_while_the_pod_is_here(store: PodConfigStore, directory: Path) -> None:
    store.note_activity("pod-1", NOON)  # not here yet
    store.set_network_namespace("pod-1", "/run/netns/a")
    store.set_device_config("pod-1", "eth0", config_of("claim-1"))
    assert (store.last_activity("pod-1"), store.network_namespace("pod-1")) == (None, "")

    store.note_activity("pod-1", NOON)
    store.set_network_namespace("pod-1", "/run/netns/a")
    store.set_device_config("pod-1", "eth1", config_of("claim-2"))
    store.delete_claim("claim-1")
    assert (store.last_activity("pod-1"), store.network_namespace("pod-1")) == (NOON, "/run/netns/a")

    store.delete_pod("pod-1")
    store.delete_pod("pod-1")
    assert list(directory.glob("*pod-1*")) == []
    store.set_device_config("pod-1", "eth0", config_of())
    assert (store.last_activity("pod-1"), store.network_namespace("pod-1")) == (None, "")
    before = datetime.now(UTC)
    store.note_activity("pod-1")
    activity = store.last_activity("pod-1")
    assert activity is not None
    assert before <= activity <= datetime.now(UTC)


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


# Synchronize


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


def test_a_pod_that_is_set_after_the_list_was_made_is_spared_and_one_that_was_only_active_is_not(
    store: PodConfigStore,
) -> None:
    for pod in ("gone", "back", "busy"):
        store.set_device_config(pod, "eth0", config_of())

    def made_too_early() -> list[str]:
        store.set_device_config("new", "eth0", config_of())
        store.set_device_config("back", "eth1", config_of())
        store.note_activity("busy")
        store.set_network_namespace("busy", "/run/netns/busy")
        return []

    report = store.synchronize(made_too_early, complete=True)

    assert report == PodSyncReport(("busy", "gone"), ("back", "new"), {}, {})
    assert store.list_pods() == ["back", "new"]


def test_a_list_that_is_incomplete_or_without_most_pods_removes_nothing(store: PodConfigStore) -> None:
    """An empty answer of a runtime that has just started looks like a node without pods."""
    for number in range(8):
        store.set_device_config(f"pod-{number}", "eth0", config_of())

    with pytest.raises(ReconcileRefused):
        store.synchronize(lambda: ["pod-1"], complete=False)
    with pytest.raises(RetainRefused, match="8 of 8"):
        store.synchronize(list, complete=True)
    assert len(store) == 8

    assert len(store.synchronize(list, complete=True, at_most=1).removed) == 8
    assert len(store) == 0


# Configs follow claims


@pytest.fixture
def claims() -> Iterator[ClaimInfoCache]:
    cache = ClaimInfoCache(MemoryStore())
    yield cache
    cache.close()


def claim(uid: str, *pods: str) -> DriverClaim:
    return DriverClaim(uid, f"claim-{uid}", "ns", pods=dict.fromkeys(pods, ""))


def put(claims: ClaimInfoCache, uid: str, *pods: str) -> None:
    claims.put(ClaimInfo(ClaimInfoState(uid, f"claim-{uid}", "ns", frozenset(pods))))


def configs(store: PodConfigStore) -> dict[str, dict[str, Any]]:
    pods = {uid: store.get_pod_config(uid) for uid in store}
    return {uid: {key: each.config for key, each in pod.devices.items()} for uid, pod in pods.items() if pod}


def test_every_pod_of_a_claim_gets_its_configs_and_no_other(store: PodConfigStore) -> None:
    store.follow(claim("a", "p1", "p2"), {"eth0": 1, "eth1": 2})
    store.follow(claim("b", "p1"), {"eth0": 3})
    assert configs(store) == {"p1": {"a/eth0": 1, "a/eth1": 2, "b/eth0": 3}, "p2": {"a/eth0": 1, "a/eth1": 2}}
    store.follow(claim("a", "p2", "p3"), {"eth0": 1})
    assert configs(store) == {"p1": {"b/eth0": 3}, "p2": {"a/eth0": 1}, "p3": {"a/eth0": 1}}
    store.follow(claim("a", "p2", "p3"), {"eth7": 7})
    assert configs(store) == {"p1": {"b/eth0": 3}, "p2": {"a/eth7": 7}, "p3": {"a/eth7": 7}}


def test_what_belongs_to_no_claim_goes_at_the_start(store: PodConfigStore, claims: ClaimInfoCache) -> None:
    put(claims, "a", "p1")
    store.follow(claim("a", "p1", "p2"), {"eth0": 1})
    store.follow(claim("gone", "p1"), {"eth0": 2})
    report = store.follow_claims(claims)
    assert report
    assert report.removed == ("p2",)
    assert configs(store) == {"p1": {"a/eth0": 1}}


def test_nothing_goes_while_a_claim_is_unknown(store: PodConfigStore, claims: ClaimInfoCache) -> None:
    unknown = ClaimInfo(ClaimInfoState("a", "", ""), from_this_boot=None, unknown="damaged")
    claims.change(["a"], lambda _: [unknown])
    store.follow(claim("b", "p1"), {"eth0": 1})
    assert store.follow_claims(claims) is None
    assert configs(store) == {"p1": {"b/eth0": 1}}


def test_a_pod_that_is_prepared_and_has_no_sandbox_yet_is_alive(store: PodConfigStore, claims: ClaimInfoCache) -> None:
    store.follow(claim("a", "p1"), {"eth0": 1})
    store.set_device_config("p2", "eth0", config_of("b"))
    put(claims, "a", "p1")
    assert store.synchronize(list, complete=True, claims=claims).removed == ("p2",)
    assert configs(store) == {"p1": {"a/eth0": 1}}


def test_for_asyncio_it_is_opened_changed_in_turn_and_closed(directory: Path) -> None:
    async def main() -> None:
        async with await AsyncPodConfigStore.open(lambda: opened(directory)) as configs:
            await configs.threads.run(["p1"], lambda: configs.cache.set_device_config("p1", "eth0", config_of("b")))
            await configs.threads.call(lambda: configs.cache.delete_claim("b"))
            assert list(configs.cache) == []

    asyncio.run(main())
