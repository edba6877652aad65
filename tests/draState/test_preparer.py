"""The driver's side: what is durable when, which claim gets a device, and what the present allocation decides."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from checkpointmanager import CheckpointManager
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
    PrepareResult,
    ResourceClaim,
)

from .driverside import GPU, PARTITION, POOL, DriverNode, Hardware, names


@pytest.fixture
def node(directory: Path) -> Iterator[DriverNode]:
    node = DriverNode(directory)
    yield node
    node.stop()


def on_disk(node: DriverNode, uid: str) -> Any:
    """This driver's record of a claim, as another process would read it now."""
    with CheckpointManager(node.directory, CLAIMS, read_only=True) as manager:
        return manager.get_checkpoint(uid).data.driver_states[GPU]


def test_each_phase_is_durable_before_the_step_that_it_announces(
    node: DriverNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = OpaqueConfig({"mode": "fast"})
    ref = node.server.allocate("a", "gpu-0", "gpu-1", configs=(config,))
    seen: list[Any] = []
    set_up, tear_down = Hardware.set_up, Hardware.tear_down

    def looking_set_up(self: Hardware, claim: DriverClaim) -> DriverClaim:
        seen.append(on_disk(node, claim.uid))
        return set_up(self, claim)

    def looking_tear_down(self: Hardware, claim: DriverClaim) -> None:
        seen.append(on_disk(node, claim.uid))
        assert claim.driver_data == PARTITION
        tear_down(self, claim)

    monkeypatch.setattr(Hardware, "set_up", looking_set_up)
    monkeypatch.setattr(Hardware, "tear_down", looking_tear_down)

    answer = node.prepare(ref)
    seen.append(on_disk(node, "a"))
    assert node.unprepare(ref) == ""

    before, after, going = seen
    assert (before.phase, before.configs, before.driver_data) == (ClaimPhase.PREPARING, (config,), None)
    assert [device.device_name for device in before.devices] == ["gpu-0", "gpu-1"]
    assert (after.phase, after.driver_data, after.devices) == (ClaimPhase.PREPARED, PARTITION, answer.devices)
    assert (going.phase, going.driver_data) == (ClaimPhase.UNPREPARING, PARTITION)
    assert (len(node.cache), node.hardware.holdings()) == (0, {})


def test_a_repeated_prepare_gives_the_same_answer_and_sets_nothing_up(node: DriverNode) -> None:
    ref = node.server.allocate("a", "gpu-0")
    first = node.prepare(ref)
    generation = on_disk(node, "a")

    assert node.prepare(ref) == first

    assert node.hardware.calls == [("set_up", "a"), ("refresh", "a")]
    assert on_disk(node, "a") == generation


def test_pods_and_request_names_follow_the_present_claim_without_a_new_set_up(node: DriverNode) -> None:
    ref = node.server.allocate("a", Device(POOL, "gpu-0", request_names=("gpu/small",)))
    node.prepare(ref)
    node.server.claims["a"] = replace(
        node.server.claims["a"], devices=(Device(POOL, "gpu-0", request_names=("gpu",)),), pods={"second": "pod-2"}
    )

    (device,) = node.prepare(ref).devices

    assert device.request_names == ("gpu",)
    assert device.cdi_device_ids, "what set_up returned is kept"
    assert [claim.uid for claim in node.cache.of_pod("second")] == ["a"]
    assert node.hardware.calls.count(("set_up", "a")) == 1


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
def test_the_present_allocation_decides(node: DriverNode, now: dict[str, Any], restarted: bool) -> None:
    ref = node.server.allocate("a", "gpu-0", configs=(OpaqueConfig({"mode": "fast"}),))
    node.prepare(ref)
    node.server.claims["a"] = replace(node.server.claims["a"], **now)
    if restarted:
        node.restart()

    prepared = node.prepare(ref)

    assert [device.identity for device in prepared.devices] == [
        device.identity for device in node.server.claims["a"].devices
    ]
    assert [claim.driver_data for claim in node.hardware.torn_down] == [PARTITION]
    assert node.kinds().count("allocation-changed") == 1
    assert node.phase("a") is ClaimPhase.PREPARED
    assert len(node.hardware.holdings()) == 1


def test_two_claims_that_swapped_their_devices_both_get_the_new_one(node: DriverNode) -> None:
    one, two = node.server.allocate("a", "gpu-0"), node.server.allocate("b", "gpu-1")
    for ref in (one, two):
        node.prepare(ref)
    node.server.allocate("a", "gpu-1")
    node.server.allocate("b", "gpu-0")
    assert "is held by" in node.prepare(one).error, "until the other one is prepared as well"
    assert names(node.prepare(two)) == ["gpu-0"]
    assert names(node.prepare(one)) == ["gpu-1"]
    assert node.hardware.holdings() == {"gpu-0": "b", "gpu-1": "a"}


def test_without_the_api_server_only_what_is_prepared_in_this_boot_is_answered(node: DriverNode) -> None:
    ref = node.server.allocate("a", "gpu-0")
    new = node.server.allocate("b", "gpu-1")
    first = node.prepare(ref)
    node.server.down = True

    assert "its allocation cannot be read: connection refused" in node.prepare(new).error
    assert node.prepare(ref) == first
    assert node.kinds() == ["failed", "answered-from-memory"]
    assert node.preparer.answered_from_memory == 1
    node.restart()
    assert node.prepare(ref) == first
    node.restart("boot-2")
    assert "cannot be read" in node.prepare(ref).error
    assert node.phase("a") is ClaimPhase.PREPARED, "and it still holds its device"


def test_a_claim_that_is_gone_is_not_answered_from_memory(node: DriverNode) -> None:
    ref = node.server.allocate("a", "gpu-0")
    node.prepare(ref)
    del node.server.claims["a"]
    assert "is not there" in node.prepare(ref).error
    assert node.hardware.holdings() == {"gpu-0": "a"}, "a pod may still be using it"
    assert node.unprepare(ref) == ""
    assert node.hardware.holdings() == {}


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
    node: DriverNode, one: Device, other: Device, possible: bool, restarted: bool
) -> None:
    assert names(node.prepare(node.server.allocate("a", one)))
    node.hardware._file(one).write_text("")  # the hardware of these tests cannot share devices
    if restarted:
        node.restart("boot-2")
    answer = node.prepare(node.server.allocate("b", other))
    assert bool(answer.devices) is possible, answer
    if possible:
        assert answer.devices[0].consumed_capacity == other.consumed_capacity
        assert answer.devices[0].admin_access == other.admin_access
    else:
        assert "is held by claim default/claim-a (UID a)" in answer.error
        assert "b" not in node.cache


def test_a_driver_whose_pools_have_devices_of_one_name_says_so(node: DriverNode) -> None:
    node.hardware.one_name_one_device = False
    assert names(node.prepare(node.server.allocate("a", PLAIN)))
    node.hardware._file(PLAIN).unlink()
    assert names(node.prepare(node.server.allocate("b", RENAMED)))


def test_of_many_threads_that_want_one_device_exactly_one_gets_it(node: DriverNode) -> None:
    refs = [node.server.allocate(f"u{n}", "gpu-0") for n in range(12)]
    answers: list[PrepareResult] = []
    threads = [threading.Thread(target=lambda ref=ref: answers.append(node.prepare(ref))) for ref in refs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [bool(answer.devices) for answer in answers].count(True) == 1
    assert len(node.cache) == 1


def test_what_the_driver_refuses_leaves_no_trace(node: DriverNode) -> None:
    node.hardware.failing = {"check"}
    assert node.prepare(node.server.allocate("a", "gpu-0")).error == "not on this node"
    assert (len(node.cache), node.hardware.holdings()) == (0, {})


def test_one_claim_of_a_request_fails_and_the_others_are_prepared(node: DriverNode) -> None:
    good, bad = node.server.allocate("a", "gpu-0"), ClaimRef("b", "b", "default")
    answers = node.preparer.prepare([bad, good])
    assert names(answers["a"]) == ["gpu-0"]
    assert "is not there" in answers["b"].error
    assert node.preparer.unprepare([bad, good]) == {"a": "", "b": ""}


def test_a_caller_whose_deadline_has_passed_gets_nothing_done(node: DriverNode) -> None:
    ref = node.server.allocate("a", "gpu-0")
    answers = node.preparer.prepare([ref], deadline=time.monotonic())
    assert "deadline passed" in answers["a"].error
    assert (len(node.cache), node.hardware.calls) == (0, [])
    assert names(node.preparer.prepare([ref], deadline=time.monotonic() + 60)["a"]) == ["gpu-0"]


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (None, "answered NoneType where DriverClaim is expected"),
        (DriverClaim("a", "n", "s", (Device(POOL, "gpu-9"),)), "set up devices other than those allocated"),
        (DriverClaim("b", "n", "s", (Device(POOL, "gpu-0"),)), "set up devices other than those allocated"),
    ],
)
def test_a_driver_that_answers_nonsense_is_not_believed(
    node: DriverNode, monkeypatch: pytest.MonkeyPatch, answer: Any, error: str
) -> None:
    monkeypatch.setattr(Hardware, "set_up", lambda *_: answer)
    assert error in node.prepare(node.server.allocate("a", "gpu-0")).error
    assert node.phase("a") is ClaimPhase.PREPARING


def test_what_the_author_does_to_driver_data_does_not_reach_the_record(
    node: DriverNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = {"list": [1]}
    monkeypatch.setattr(Hardware, "set_up", lambda _, claim: replace(claim, driver_data=data))
    monkeypatch.setattr(Hardware, "refresh", lambda _, claim: claim.driver_data["list"].append(2))
    ref = node.server.allocate("a", "gpu-0")
    node.prepare(ref)
    data["list"].append(3)
    node.prepare(ref)
    claim = node.cache.get("a")
    assert claim
    assert claim.state.driver_states[GPU].driver_data == {"list": [1]}


def test_it_is_a_driver_for_a_manager(node: DriverNode) -> None:
    cache = ClaimInfoCache(node.directory.parent / "kubelet")
    manager = DRAManager(cache, {GPU: node.preparer})
    node.server.allocate("a", "gpu-0")
    claim = ResourceClaim("a", "claim-a", "default", {GPU: Allocation()}, frozenset({"p"}))
    manager.prepare_resources(Pod("p", "pod", "default", {"c": claim}))
    assert node.phase("a") is ClaimPhase.PREPARED
    manager.unprepare_resources("p")
    assert len(node.cache) == 0
    cache.close()
