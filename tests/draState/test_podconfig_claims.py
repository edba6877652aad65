"""Pod configs follow the claims that they come from."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from checkpointmanager import MemoryStore
from draState import ClaimInfo, ClaimInfoCache, ClaimInfoState, DriverClaim, PodConfigStore
from draState.aio import AsyncPodConfigStore

from .podconfigs import config_of, opened


@pytest.fixture
def store(directory: Path) -> Iterator[PodConfigStore]:
    with opened(directory) as store:
        yield store


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


def test_two_claims_with_a_device_of_one_name_keep_both_configs(store: PodConfigStore) -> None:
    store.set_device_config("pod-1", "eth0", config_of("a", 1))
    store.set_device_config("pod-1", "eth0", config_of("b", 2))
    assert store.get_device_config("pod-1", "a", "eth0") == config_of("a", 1)
    assert store.get_device_config("pod-1", "b", "eth0") == config_of("b", 2)
    store.delete_claim("a")
    assert store.get_device_config("pod-1", "a", "eth0") is None
    assert store.get_device_config("pod-1", "b", "eth0") == config_of("b", 2)


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
    put(claims, "a", "p1")
    store.follow(claim("a", "p1"), {"eth0": 1})
    store.follow(claim("b", "p2"), {"eth0": 1})
    assert store.synchronize(list, complete=True, claims=claims).removed == ("p2",)
    assert list(store) == ["p1"]


def test_the_same_for_asyncio(directory: Path, claims: ClaimInfoCache) -> None:
    async def main() -> None:
        async with await AsyncPodConfigStore.open(lambda: opened(directory)) as store:
            await store.follow(claim("a", "p1"), {"eth0": 1})
            await store.set_device_config("p2", "eth0", config_of("b"))
            await store.set_pod_config("p3", {"hostname": "x"})
            put(claims, "a", "p1")
            assert (await store.synchronize(lambda: ["p3"], complete=True, claims=claims)).removed == ("p2",)
            await store.delete_pod("p3")
            report = await store.follow_claims(claims)
            assert report
            assert report.kept == ("p1",)
            assert await store.delete_claim("a") == ("p1",)
            assert list(store.cache) == []

    asyncio.run(main())
