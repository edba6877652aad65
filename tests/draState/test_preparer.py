"""The driver's side: what is durable when, which claim gets a device, and what the present allocation decides."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from checkpointmanager import CheckpointManager, FileStore
from draState import (
    CLAIMS,
    Allocation,
    ClaimInfoCache,
    ClaimPhase,
    ClaimRef,
    Device,
    DRAManager,
    DriverClaim,
    OpaqueConfig,
    Pod,
    ResourceClaim,
)

from .drivers import Doorstop
from .driverside import GPU, PARTITION, POOL, DriverNode, Hardware, names
from .stores import WatchedStore


def on_disk(driver: DriverNode, uid: str) -> Any:
    """This driver's record of a claim, as another process would read it now."""
    with CheckpointManager(driver.directory, CLAIMS, read_only=True) as manager:
        return manager.get_checkpoint(uid).data.driver_states[GPU]


def test_each_phase_is_durable_before_the_step_that_it_announces(
    driver: DriverNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = OpaqueConfig({"mode": "fast"})
    ref = driver.server.allocate("a", "gpu-0", "gpu-1", configs=(config,))
    seen: list[Any] = []
    set_up, tear_down = Hardware.set_up, Hardware.tear_down

    def looking_set_up(self: Hardware, claim: DriverClaim) -> DriverClaim:
        seen.append(on_disk(driver, claim.uid))
        return set_up(self, claim)

    def looking_tear_down(self: Hardware, claim: DriverClaim) -> None:
        seen.append(on_disk(driver, claim.uid))
        assert claim.driver_data == PARTITION
        tear_down(self, claim)

    monkeypatch.setattr(Hardware, "set_up", looking_set_up)
    monkeypatch.setattr(Hardware, "tear_down", looking_tear_down)

    answer = driver.prepare(ref)
    seen.append(on_disk(driver, "a"))
    assert driver.unprepare(ref) == ""

    before, after, going = seen
    assert (before.phase, before.configs, before.driver_data) == (ClaimPhase.PREPARING, (config,), None)
    assert [device.device_name for device in before.devices] == ["gpu-0", "gpu-1"]
    assert (after.phase, after.driver_data, after.devices) == (ClaimPhase.PREPARED, PARTITION, answer.devices)
    assert (going.phase, going.driver_data) == (ClaimPhase.UNPREPARING, PARTITION)
    assert (len(driver.cache), driver.hardware.holdings()) == (0, {})


def test_a_repeated_prepare_gives_the_same_answer_and_sets_nothing_up(driver: DriverNode) -> None:
    ref = driver.server.allocate("a", "gpu-0")
    first = driver.prepare(ref)
    generation = on_disk(driver, "a")

    assert driver.prepare(ref) == first

    assert driver.hardware.calls == [("set_up", "a"), ("refresh", "a")]
    assert on_disk(driver, "a") == generation


def test_pods_and_request_names_follow_the_present_claim_without_a_new_set_up(driver: DriverNode) -> None:
    ref = driver.server.allocate("a", Device(POOL, "gpu-0", request_names=("gpu/small",)))
    driver.prepare(ref)
    driver.server.claims["a"] = replace(
        driver.server.claims["a"], devices=(Device(POOL, "gpu-0", request_names=("gpu",)),), pods={"second": "pod-2"}
    )

    (device,) = driver.prepare(ref).devices

    assert device.request_names == ("gpu",)
    assert device.cdi_device_ids, "what set_up returned is kept"
    assert [claim.uid for claim in driver.cache.of_pod("second")] == ["a"]
    assert driver.hardware.calls.count(("set_up", "a")) == 1


@pytest.mark.parametrize("restarted", [False, True])
@pytest.mark.parametrize(
    "now",
    [
        {"devices": (Device(POOL, "gpu-1"),)},
        {"devices": (Device(POOL, "gpu-0", admin_access=True),)},
        {"configs": (OpaqueConfig({"mode": "slow"}),)},
    ],
    ids=["devices", "admin access", "configs"],
)
def test_the_present_allocation_decides(driver: DriverNode, now: dict[str, Any], restarted: bool) -> None:
    ref = driver.server.allocate("a", "gpu-0", configs=(OpaqueConfig({"mode": "fast"}),))
    driver.prepare(ref)
    driver.server.claims["a"] = replace(driver.server.claims["a"], **now)
    if restarted:
        driver.restart()

    prepared = driver.prepare(ref)

    assert [device.identity for device in prepared.devices] == [
        device.identity for device in driver.server.claims["a"].devices
    ]
    assert [claim.driver_data for claim in driver.hardware.torn_down] == [PARTITION]
    assert driver.kinds().count("allocation-changed") == 1
    assert driver.phase("a") is ClaimPhase.PREPARED
    assert len(driver.hardware.holdings()) == 1


def test_two_claims_that_swapped_their_devices_both_get_the_new_one(driver: DriverNode) -> None:
    one, two = driver.server.allocate("a", "gpu-0"), driver.server.allocate("b", "gpu-1")
    for ref in (one, two):
        driver.prepare(ref)
    driver.server.allocate("a", "gpu-1")
    driver.server.allocate("b", "gpu-0")
    assert "is held by" in driver.prepare(one).error, "until the other one is prepared as well"
    assert names(driver.prepare(two)) == ["gpu-0"]
    assert names(driver.prepare(one)) == ["gpu-1"]
    assert driver.hardware.holdings() == {"gpu-0": "b", "gpu-1": "a"}


def test_without_the_api_server_only_what_is_prepared_in_this_boot_is_answered(driver: DriverNode) -> None:
    ref = driver.server.allocate("a", "gpu-0")
    new = driver.server.allocate("b", "gpu-1")
    first = driver.prepare(ref)
    driver.server.down = True

    assert "its allocation cannot be read: connection refused" in driver.prepare(new).error
    assert driver.prepare(ref) == first
    assert driver.kinds() == ["failed", "answered-from-memory"]
    assert driver.preparer.answered_from_memory == 1
    driver.restart()
    assert driver.prepare(ref) == first
    driver.restart("boot-2")
    assert "cannot be read" in driver.prepare(ref).error
    assert driver.phase("a") is ClaimPhase.PREPARED, "and it still holds its device"


def test_a_claim_that_is_gone_is_not_answered_from_memory(driver: DriverNode) -> None:
    ref = driver.server.allocate("a", "gpu-0")
    driver.prepare(ref)
    del driver.server.claims["a"]
    assert "is not there" in driver.prepare(ref).error
    assert driver.hardware.holdings() == {"gpu-0": "a"}, "a pod may still be using it"
    assert driver.unprepare(ref) == ""
    assert driver.hardware.holdings() == {}


SHARE_1, SHARE_2 = (Device(POOL, "gpu-0", share, consumed_capacity={"memory": "1Gi"}) for share in ("s1", "s2"))
PLAIN = Device(POOL, "gpu-0")
ADMIN = Device(POOL, "gpu-0", admin_access=True)
RENAMED = Device("renamed", "gpu-0")


@pytest.mark.parametrize(
    ("one", "other", "possible"),
    [
        (PLAIN, PLAIN, False),
        (PLAIN, RENAMED, False),
        (RENAMED, PLAIN, False),
        (PLAIN, Device(POOL, "gpu-1"), True),
        (PLAIN, ADMIN, True),
        (ADMIN, PLAIN, True),
        (ADMIN, ADMIN, True),
        (SHARE_1, SHARE_2, True),
        (SHARE_1, SHARE_1, False),
        (SHARE_1, PLAIN, False),
        (PLAIN, SHARE_1, False),
        (SHARE_1, ADMIN, True),
    ],
)
@pytest.mark.parametrize("restarted", [False, True])
def test_no_device_goes_to_two_claims_unless_it_may(
    driver: DriverNode, one: Device, other: Device, possible: bool, restarted: bool
) -> None:
    assert names(driver.prepare(driver.server.allocate("a", one)))
    driver.hardware._file(one).write_text("")  # the hardware of these tests cannot share devices
    if restarted:
        driver.restart("boot-2")
    answer = driver.prepare(driver.server.allocate("b", other))
    assert bool(answer.devices) is possible, answer
    if possible:
        assert answer.devices[0].consumed_capacity == other.consumed_capacity
        assert answer.devices[0].admin_access == other.admin_access
    else:
        assert "is held by claim default/claim-a (UID a)" in answer.error
        assert "b" not in driver.cache


def test_a_driver_whose_pools_have_devices_of_one_name_says_so(driver: DriverNode) -> None:
    driver.hardware.one_name_one_device = False
    assert names(driver.prepare(driver.server.allocate("a", PLAIN)))
    driver.hardware._file(PLAIN).unlink()
    assert names(driver.prepare(driver.server.allocate("b", RENAMED)))


def test_while_a_device_is_recorded_for_one_claim_no_other_finds_it_free(directory: Path) -> None:
    store, recording = WatchedStore(FileStore(directory)), Doorstop()
    store.before = lambda _, uids: recording() if uids == ("a",) else None
    driver = DriverNode(directory, cache=ClaimInfoCache(store))
    first, second = driver.server.allocate("a", "gpu-0"), driver.server.allocate("b", "gpu-0")

    with ThreadPoolExecutor() as pool:
        winner = pool.submit(driver.prepare, first)
        recording.wait_until_reached()
        loser = pool.submit(driver.prepare, second)
        with pytest.raises(TimeoutError):
            loser.result(0.2)
        recording.let_go()

    assert names(winner.result()) == ["gpu-0"]
    assert "is held by claim default/claim-a" in loser.result().error
    driver.stop()


def test_what_the_driver_refuses_leaves_no_trace(driver: DriverNode) -> None:
    driver.hardware.failing = {"check"}
    assert driver.prepare(driver.server.allocate("a", "gpu-0")).error == "not on this node"
    assert (len(driver.cache), driver.hardware.holdings()) == (0, {})


def test_one_claim_of_a_request_fails_and_the_others_are_prepared(driver: DriverNode) -> None:
    good, bad = driver.server.allocate("a", "gpu-0"), ClaimRef("b", "b", "default")
    answers = driver.preparer.prepare([bad, good])
    assert names(answers["a"]) == ["gpu-0"]
    assert "is not there" in answers["b"].error
    assert driver.preparer.unprepare([bad, good]) == {"a": "", "b": ""}


def test_a_caller_whose_deadline_has_passed_gets_nothing_done(driver: DriverNode) -> None:
    ref = driver.server.allocate("a", "gpu-0")
    answers = driver.preparer.prepare([ref], deadline=time.monotonic())
    assert "deadline passed" in answers["a"].error
    assert (len(driver.cache), driver.hardware.calls) == (0, [])
    assert names(driver.preparer.prepare([ref], deadline=time.monotonic() + 60)["a"]) == ["gpu-0"]


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (None, "answered NoneType where DriverClaim is expected"),
        (DriverClaim("a", "n", "s", (Device(POOL, "gpu-9"),)), "set up devices other than those allocated"),
        (DriverClaim("b", "n", "s", (Device(POOL, "gpu-0"),)), "set up devices other than those allocated"),
    ],
)
def test_a_driver_that_answers_nonsense_is_not_believed(
    driver: DriverNode, monkeypatch: pytest.MonkeyPatch, answer: Any, error: str
) -> None:
    monkeypatch.setattr(Hardware, "set_up", lambda *_: answer)
    assert error in driver.prepare(driver.server.allocate("a", "gpu-0")).error
    assert driver.phase("a") is ClaimPhase.PREPARING


def test_what_the_author_does_to_driver_data_does_not_reach_the_record(
    driver: DriverNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = {"list": [1]}
    monkeypatch.setattr(Hardware, "set_up", lambda _, claim: replace(claim, driver_data=data))
    monkeypatch.setattr(Hardware, "refresh", lambda _, claim: claim.driver_data["list"].append(2))
    ref = driver.server.allocate("a", "gpu-0")
    driver.prepare(ref)
    data["list"].append(3)
    driver.prepare(ref)
    claim = driver.claim("a")
    assert claim.state.driver_states[GPU].driver_data == {"list": [1]}


def test_it_is_a_driver_for_a_manager(driver: DriverNode) -> None:
    cache = ClaimInfoCache(driver.directory.parent / "kubelet")
    manager = DRAManager(cache, {GPU: driver.preparer})
    driver.server.allocate("a", "gpu-0")
    claim = ResourceClaim("a", "claim-a", "default", {GPU: Allocation()}, frozenset({"p"}))
    manager.prepare_resources(Pod("p", "pod", "default", {"c": claim}))
    assert driver.phase("a") is ClaimPhase.PREPARED
    manager.unprepare_resources("p")
    assert len(driver.cache) == 0
    cache.close()
