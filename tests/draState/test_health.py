"""What is known about devices from their drivers' reports, and which watchers are called."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from checkpointmanager import InvalidKey, ManagerClosed, MemoryStore
from draState import DeviceHealth, DeviceHealthStore, Health, HealthChange

from .health import GPU, HEALTHY, NIC, UNHEALTHY, UNKNOWN, HealthNode, device


@pytest.fixture
def node(directory: Path) -> Iterator[HealthNode]:
    node = HealthNode(directory)
    yield node
    node.store.close()


# Reads.


@pytest.mark.parametrize(
    ("reported", "passed", "asked", "health"),
    [
        ([], 0, ("p", "d0"), UNKNOWN),
        ([device()], 0, ("p", "d0"), HEALTHY),
        ([device(health=UNHEALTHY)], 0, ("p", "d0"), UNHEALTHY),
        ([device(health=UNKNOWN)], 0, ("p", "d0"), UNKNOWN),
        ([device()], 31, ("p", "d0"), UNKNOWN),
        ([device()], 29, ("p", "d0"), HEALTHY),
        ([device()], 30, ("p", "d0"), HEALTHY),
        ([device()], 30.01, ("p", "d0"), UNKNOWN),
        ([device(timeout=5)], 6, ("p", "d0"), UNKNOWN),
        ([device(timeout=300)], 299, ("p", "d0"), HEALTHY),
        ([device()], -1, ("p", "d0"), UNKNOWN),
        ([device()], 31, ("p", "d1"), UNKNOWN),
        ([device()], 0, ("p", "d1"), UNKNOWN),
        ([device()], 0, ("other", "d0"), UNKNOWN),
        ([device(), device("d1", UNHEALTHY)], 0, ("p", "d1"), UNHEALTHY),
        ([device(), device("d1", UNHEALTHY)], 0, ("p", "d0"), HEALTHY),
        ([device(), device(health=UNHEALTHY)], 0, ("p", "d0"), UNHEALTHY),
        ([device(), device(health=UNHEALTHY, pool="q")], 0, ("p", "d0"), HEALTHY),
    ],
)
def test_a_device_has_the_health_of_the_last_report_until_it_expires(
    node: HealthNode, reported: list[DeviceHealth], passed: float, asked: tuple[str, str], health: Health
) -> None:
    node.report(*(DeviceHealth(d.pool_name, d.device_name, d.health, "why", d.timeout) for d in reported))
    node.time += passed  # and no check for expired reports has run

    found = node.store.get(GPU, *asked)

    assert (found.name, found.health) == (asked, health)
    assert found.message == ("" if found.reported == 0 else "why")
    assert (found.reported == 0) == (found not in node.store.drivers().get(GPU, ()))
    assert node.store.get(NIC, *asked).health is UNKNOWN


@pytest.mark.parametrize(
    ("number", "health"), [(0, UNKNOWN), (1, HEALTHY), (2, UNHEALTHY), (99, UNKNOWN), (-1, UNKNOWN)]
)
def test_a_number_of_the_wire_is_a_health(number: int, health: Health) -> None:
    assert Health.numbered(number) is health


@pytest.mark.parametrize(
    ("message", "kept"),
    [
        ("", ""),
        ("ü" * 1024, "ü" * 1024),
        ("ü" * 1025, "ü" * 1021 + "..."),
    ],
)
def test_a_long_message_is_cut(node: HealthNode, message: str, kept: str) -> None:
    node.report(device(message=message))
    assert node.message() == kept
    assert len(kept) <= 1024


@pytest.mark.parametrize(
    ("given", "kept"), [(12, 12.0), (0, 30.0), (-1, 30.0), (0.5, 0.5), (float("inf"), 30.0), (float("nan"), 30.0)]
)
def test_a_time_out_of_zero_or_less_is_kubelets(node: HealthNode, given: float, kept: float) -> None:
    node.report(device(timeout=given))
    assert node.store.get(GPU, "p", "d0").timeout == kept
    assert node.passed(kept) == []
    assert node.passed(0.01) == ["d0"]


# Announcements.


@pytest.mark.parametrize(
    ("first", "second", "changes"),
    [
        (device(), device(), False),
        (device(), device(health=UNHEALTHY), True),
        (device(), device(health=UNKNOWN), True),
        (device(), device(message="hot"), True),
        (device(message="hot"), device(), True),
        (device(message="hot"), device(message="hot"), False),
        (device(), device(timeout=30), False),
        (device(), device(timeout=31), True),
        (device(timeout=-1), device(timeout=0), False),
        (device(message="x" * 2000), device(message="x" * 3000), False),
        (device(health=UNKNOWN), device(health=UNKNOWN), False),
    ],
)
def test_another_status_message_or_time_out_is_a_change(
    node: HealthNode, first: DeviceHealth, second: DeviceHealth, changes: bool
) -> None:
    assert node.report(first) == ["d0"]
    node.time += 1
    assert node.report(second) == (["d0"] if changes else [])
    assert node.store.get(GPU, "p", "d0").reported == node.time


def test_a_silent_driver_is_announced_once_when_its_report_expires(node: HealthNode) -> None:
    node.report(device(), device("d1", timeout=60))
    assert node.passed(30) == []
    assert node.passed(1) == ["d0"]
    assert node.passed(1) == []
    assert node.passed(60) == ["d1"]
    assert node.passed(60) == []


@pytest.mark.parametrize("looked", [False, True])
def test_a_device_that_comes_back_is_announced_though_its_report_is_the_same(node: HealthNode, looked: bool) -> None:
    node.report(device())
    node.time += 31
    if looked:
        node.store.expire()
    assert node.report(device()) == ["d0"]


@pytest.mark.parametrize("looked", [False, True])
def test_a_device_that_was_already_unknown_goes_without_an_announcement(node: HealthNode, looked: bool) -> None:
    node.report(device("was-healthy"), device("unknown", UNKNOWN), device("says-why", UNKNOWN, "checking"))
    if looked:
        assert node.passed(31) == ["says-why", "was-healthy"]
        assert node.report(device("fresh")) == ["fresh"]
    else:
        node.time += 31
        assert node.report(device("fresh")) == ["fresh", "says-why", "was-healthy"]
    assert [d.device_name for d in node.store.drivers()[GPU]] == ["fresh"]


def test_a_driver_whose_stream_has_ended_is_forgotten_and_that_is_announced(node: HealthNode) -> None:
    node.report(device(), device("d1", UNKNOWN))
    node.report(device(), driver=NIC)
    del node.changes[:]

    node.store.forget(GPU)

    assert node.changes == [(GPU, ["d0"])]
    assert (node.health(), node.health(driver=NIC)) == (UNKNOWN, HEALTHY)
    node.store.forget(GPU)
    assert len(node.changes) == 1


@pytest.mark.parametrize("end", [None, RuntimeError("broken stream"), KeyboardInterrupt()])
def test_reports_are_followed_until_the_stream_ends(node: HealthNode, end: BaseException | None) -> None:
    seen: list[Health] = []

    def stream() -> Iterator[list[DeviceHealth]]:
        for health in (HEALTHY, UNHEALTHY):
            yield [device(health=health)]
            seen.append(node.health())
        if end:
            raise end

    if end:
        with pytest.raises(type(end)):
            node.store.follow(GPU, stream())
    else:
        node.store.follow(GPU, stream())

    assert (seen, node.health()) == ([HEALTHY, UNHEALTHY], UNKNOWN)
    assert node.changes == [(GPU, ["d0"])] * 3


# Limits.

MOST = 16_384  # devices of one driver


def test_a_driver_has_a_limited_number_of_devices_and_known_ones_are_always_updated(
    node: HealthNode, caplog: pytest.LogCaptureFixture
) -> None:
    many = [device(f"d{n}") for n in range(MOST)]
    with caplog.at_level(logging.WARNING, "draState"):
        assert len(node.report(*many, device("one-more"))) == MOST
        assert node.report(device("one-too-many"), device("d0", UNHEALTHY)) == ["d0"]
    assert caplog.messages == [f"health of driver {GPU}: ignoring 1 devices above the limit, 16384"]  # not each time
    assert (node.health("one-more"), node.health("one-too-many"), node.health()) == (UNKNOWN, UNKNOWN, UNHEALTHY)
    assert node.store.ignored == {GPU: 1}
    assert node.report(device("one-too-many"), driver=NIC) == ["one-too-many"]
    node.store.forget(GPU)
    assert node.store.ignored == {}


def test_expired_devices_make_room_but_never_for_a_device_that_is_known(
    node: HealthNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("draState._health.store.MOST_DEVICES", 8)
    lasting = [device(f"d{n}", timeout=600) for n in range(5)]
    node.report(*lasting, device("a"), device("b"), device("c"))
    node.time += 31
    node.report(device("x"), device("y"), device("z"), device("a", UNHEALTHY))
    kept = {d.device_name for d in node.store.drivers()[GPU]} - {d.device_name for d in lasting}
    assert kept == {"a", "x", "y"}
    assert node.store.ignored == {GPU: 1}
    node.report(device("a"))
    assert node.store.ignored == {}


@pytest.mark.parametrize("stranger", [7, None, DeviceHealth("p", "d1", HEALTHY, None)])  # type: ignore[arg-type]
def test_an_invalid_report_changes_nothing(node: HealthNode, stranger: Any) -> None:
    node.report(device())
    with pytest.raises((AttributeError, TypeError)):
        node.store.report(GPU, [device(health=UNHEALTHY), stranger])
    assert node.health() is HEALTHY
    assert len(node.changes) == 1
    assert node.report(device(health=UNHEALTHY)) == ["d0"]  # no lock is held


def test_a_driver_needs_a_valid_name(node: HealthNode) -> None:
    with pytest.raises(InvalidKey):
        node.store.report("\ud800", [])
    with pytest.raises(InvalidKey):
        node.store.forget("")


# Watchers.


def test_a_watcher_that_fails_costs_nothing(directory: Path, caplog: pytest.LogCaptureFixture) -> None:
    def fail(_: HealthChange) -> None:
        raise RuntimeError("watcher")

    with DeviceHealthStore(directory, on_change=fail, boot_id="b") as store:
        with caplog.at_level(logging.ERROR, "draState"):
            store.report(GPU, [device()])
        assert store.get(GPU, "p", "d0").health is HEALTHY
    assert caplog.messages == [f"the on_change callback failed on a change of driver {GPU}"]


def test_a_watcher_may_use_the_store(directory: Path) -> None:
    def forget(change: HealthChange) -> None:
        if store.get(change.driver, "p", "d0").health is HEALTHY:
            store.forget(change.driver)

    with DeviceHealthStore(directory, on_change=forget, boot_id="b") as store:
        store.report(GPU, [device()])
        assert store.drivers() == {}
    assert not list(directory.glob("*.json"))


def test_the_store_itself_notices_when_a_report_expires() -> None:
    announced = threading.Event()
    heard: list[tuple[HealthChange, Health]] = []

    def changed(change: HealthChange) -> None:
        heard.append((change, store.get(GPU, "p", "d0").health))
        if len(heard) == 3:
            announced.set()

    with DeviceHealthStore(MemoryStore(), on_change=changed) as store:
        store.report(GPU, [device(timeout=600), device("d1", timeout=600)])
        until_its_thread_waits(store)
        store.report(GPU, [device(timeout=0.02), device("d1", timeout=600)])  # expires before the one that it waits for
        assert announced.wait(30)
    change = HealthChange(GPU, frozenset({("p", "d0")}))
    assert heard[2:] == [(change, UNKNOWN)]  # after the two reports


def until_its_thread_waits(store: DeviceHealthStore) -> None:
    end = time.monotonic() + 30
    while not store._changing._waiters:  # type: ignore[attr-defined]
        assert time.monotonic() < end
        time.sleep(0.001)


def test_the_store_notices_it_after_a_restart_too() -> None:
    disk, times = MemoryStore(), [1000.0]
    with DeviceHealthStore(disk, clock=lambda: times[-1], boot_id="b") as store:
        store.report(GPU, [device()])
    times.append(1030.0)
    announced = threading.Event()
    with DeviceHealthStore(disk, clock=lambda: times[-1], boot_id="b", on_change=lambda _: announced.set()) as store:
        assert store.get(GPU, "p", "d0").health is HEALTHY
        times.append(1031.0)
        assert announced.wait(30)


def test_a_closed_store_refuses_reports_and_can_still_be_read(node: HealthNode) -> None:
    node.report(device())
    node.store.close()
    node.store.close()
    calls: list[Any] = [
        lambda: node.store.report(GPU, [device(health=UNHEALTHY)]),
        lambda: node.store.forget(GPU),
        node.store.expire,
        lambda: node.store.follow(GPU, [[]]),
    ]
    for call in calls:
        with pytest.raises(ManagerClosed):
            call()
    assert node.health() is HEALTHY
