"""What a driver chooses on the node is durable before it sets anything up, and chosen once."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from checkpointmanager.testing import damage
from draState import ClaimPhase, DriverClaim, OpaqueConfig

from .drivers import Died, race
from .driverside import Choosing, DriverNode, names


class ChoosingNode(DriverNode):
    hooks = Choosing


@pytest.fixture
def driver(directory: Path) -> Iterator[DriverNode]:
    Choosing.given = []
    driver = ChoosingNode(directory)
    yield driver
    driver.stop()


def chosen(driver: DriverNode, uid: str) -> Any:
    claim = driver.cache.get(uid)
    return claim and claim.state.driver_states[driver.hardware.driver].driver_data


def test_each_choice_sees_the_earlier_ones(driver: DriverNode) -> None:
    for n, uid in enumerate("abc"):
        names(driver.prepare(driver.server.allocate(uid, f"gpu-{n}")))
    assert [chosen(driver, uid) for uid in "abc"] == [{"vf": 0}, {"vf": 1}, {"vf": 2}]
    driver.unprepare(driver.server.claims["b"].ref)
    assert driver.hardware.torn_down[0].driver_data == {"vf": 1}
    names(driver.prepare(driver.server.allocate("d", "gpu-1")))
    assert chosen(driver, "d") == {"vf": 1}, "free again"


def test_a_choice_that_only_damaged_bytes_show_is_not_made_again(driver: DriverNode) -> None:
    names(driver.prepare(driver.server.allocate("a", "gpu-0")))
    driver.stop()
    (driver.directory / ".previous-a").unlink()
    file = driver.directory / "a.json"
    file.write_bytes(file.read_bytes().replace(b'"written":"20', b'"written":"99'))
    driver.start()

    names(driver.prepare(driver.server.allocate("b", "gpu-1")))

    assert driver.cache.report().unknown.keys() == {"a"}
    assert chosen(driver, "b") == {"vf": 1}


@pytest.mark.parametrize("boot", ["boot-1", "boot-2"])
def test_a_kill_in_set_up_loses_no_choice(driver: DriverNode, boot: str) -> None:
    ref = driver.server.allocate("a", "gpu-0")
    driver.hardware.failing, driver.hardware.error = {"set_up"}, Died()
    with pytest.raises(Died):
        driver.prepare(ref)
    driver.restart(boot)
    assert (driver.phase("a"), chosen(driver, "a")) == (ClaimPhase.PREPARING, {"vf": 0})
    names(driver.prepare(driver.server.allocate("b", "gpu-1")))
    assert chosen(driver, "b") == {"vf": 1}, "a kill does not free what was chosen"

    names(driver.prepare(ref))

    assert Choosing.given == [{"vf": 0}, {"vf": 1}, {"vf": 0}]
    assert ("choose", "a") not in driver.hardware.calls, "once per allocation"


def test_a_kill_in_set_up_gives_tear_down_the_choice(directory: Path) -> None:
    driver = ChoosingNode(directory, unfinished="tear_down")
    driver.hardware.failing, driver.hardware.error = {"set_up"}, Died()
    with pytest.raises(Died):
        driver.prepare(driver.server.allocate("a", "gpu-0"))
    driver.restart()
    assert [claim.driver_data for claim in driver.hardware.torn_down] == [{"vf": 0}]
    assert (len(driver.cache), driver.hardware.holdings(), driver.kinds()) == (0, {}, ["unfinished"])
    driver.stop()


def test_a_record_that_was_healed_keeps_its_choice(driver: DriverNode) -> None:
    names(driver.prepare(driver.server.allocate("a", "gpu-0")))
    ref = driver.server.allocate("b", "gpu-1")
    names(driver.prepare(ref))
    driver.server.claims["b"] = replace(driver.server.claims["b"], pods={"second": "pod-2"})
    driver.prepare(ref)  # so that the previous generation has the result of set_up
    driver.stop()
    damage.empty(driver.directory, "b")
    driver.start(shows_traces=False)
    driver.unprepare(driver.server.claims["a"].ref)
    driver.preparer.review.heal()

    assert (driver.claim("b").unknown, set(driver.claim("b").state.pod_uids)) == ("", {"second"})
    names(driver.prepare(ref))
    assert Choosing.given[-1] == {"vf": 1}, "its pod uses it"


def test_a_new_allocation_is_a_new_choice(driver: DriverNode) -> None:
    names(driver.prepare(driver.server.allocate("a", "gpu-0")))
    ref = driver.server.allocate("b", "gpu-1")
    names(driver.prepare(ref))
    driver.unprepare(driver.server.claims["a"].ref)
    driver.server.allocate("b", "gpu-1", configs=(OpaqueConfig({"mode": "fast"}),))
    names(driver.prepare(ref))
    assert chosen(driver, "b") == {"vf": 0}
    assert driver.hardware.torn_down[-1].driver_data == {"vf": 1}


def test_a_choice_that_fails_leaves_no_trace(driver: DriverNode) -> None:
    driver.hardware.failing = {"choose"}
    assert driver.prepare(driver.server.allocate("a", "gpu-0")).error == "the hardware is broken"
    assert (len(driver.cache), driver.hardware.holdings()) == (0, {})


def test_many_threads_never_choose_at_the_same_time(driver: DriverNode, monkeypatch: pytest.MonkeyPatch) -> None:
    inside = threading.Barrier(2)  # the first one waits a moment for another, which must not come
    choose = Choosing.choose

    def choosing(hooks: Choosing, claim: DriverClaim, held: Mapping[str, DriverClaim]) -> Any:
        with suppress(threading.BrokenBarrierError):
            inside.wait(0.3)
            pytest.fail("two at once")
        return choose(hooks, claim, held)

    monkeypatch.setattr(Choosing, "choose", choosing)
    refs = [driver.server.allocate(f"u{n}", f"gpu-{n}") for n in range(16)]
    assert all(answer.devices for answer in race(*(partial(driver.prepare, ref) for ref in refs)))
    assert sorted(chosen(driver, ref.uid)["vf"] for ref in refs) == list(range(16))
