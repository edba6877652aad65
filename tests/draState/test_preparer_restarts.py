"""The driver's side after failures, crashes, reboots and damage: no claim is answered that is not set up."""

from __future__ import annotations

from pathlib import Path

import pytest

from checkpointmanager.testing import damage
from draState import ClaimInfo, ClaimInfoState, ClaimPhase, ClaimPreparer, Device, DriverState

from .drivers import Died
from .driverside import GPU, POOL, DriverNode, names


def crash_in(driver: DriverNode, hook: str) -> None:
    driver.hardware.failing, driver.hardware.error = {hook}, Died()


def test_a_set_up_that_was_cut_off_is_never_answered_as_prepared(driver: DriverNode) -> None:
    ref = driver.server.allocate("a", "gpu-0", "gpu-1")
    crash_in(driver, "set_up")
    with pytest.raises(Died):
        driver.prepare(ref)
    driver.restart()

    assert driver.phase("a") is ClaimPhase.PREPARING
    driver.server.down = True
    assert "cannot be read" in driver.prepare(ref).error
    driver.server.down = False
    assert "is held by claim" in driver.prepare(driver.server.allocate("b", "gpu-1")).error
    assert names(driver.prepare(ref)) == ["gpu-0", "gpu-1"]
    assert driver.hardware.holdings() == {"gpu-0": "a", "gpu-1": "a"}


@pytest.mark.parametrize("boot", ["boot-1", "boot-2"])
def test_a_tear_down_that_was_cut_off_is_finished_at_the_start(driver: DriverNode, boot: str) -> None:
    ref = driver.server.allocate("a", "gpu-0", "gpu-1")
    driver.prepare(ref)
    crash_in(driver, "tear_down")
    with pytest.raises(Died):
        driver.unprepare(ref)
    driver.restart(boot)

    assert (len(driver.cache), driver.hardware.holdings()) == (0, {})
    assert names(driver.prepare(driver.server.allocate("b", "gpu-1"))) == ["gpu-1"]


def test_a_tear_down_that_fails_at_the_start_is_tried_again_and_costs_no_other(driver: DriverNode) -> None:
    first, second = driver.server.allocate("a", "gpu-0"), driver.server.allocate("b", "gpu-1")
    for ref in (first, second):
        driver.prepare(ref)
    crash_in(driver, "tear_down")
    with pytest.raises(Died):
        driver.unprepare(first)
    driver.restart(failing={"tear_down"})

    assert driver.kinds() == ["unfinished", "failed"]
    assert driver.prepare(second).devices
    assert driver.phase("a") is ClaimPhase.UNPREPARING
    assert "is held by" in driver.prepare(driver.server.allocate("c", "gpu-0")).error
    driver.restart()
    assert names(driver.prepare(driver.server.claims["c"].ref)) == ["gpu-0"]


def test_a_failed_set_up_is_kept_and_tried_again(driver: DriverNode) -> None:
    ref = driver.server.allocate("a", "gpu-0")
    driver.hardware.failing = {"set_up"}
    assert driver.prepare(ref).error == "the hardware is broken"
    assert driver.phase("a") is ClaimPhase.PREPARING
    assert "is held by" in driver.prepare(driver.server.allocate("b", "gpu-0")).error
    driver.hardware.failing = set()
    assert names(driver.prepare(ref)) == ["gpu-0"]


def test_a_failed_set_up_is_torn_down_if_the_author_chose_so(directory: Path) -> None:
    driver = DriverNode(directory, unfinished="tear_down")
    ref = driver.server.allocate("a", "gpu-0")
    driver.hardware.failing = {"set_up"}
    assert driver.prepare(ref).error == "the hardware is broken"
    assert (len(driver.cache), driver.hardware.holdings()) == (0, {})
    driver.hardware.failing = {"set_up", "tear_down"}
    assert driver.prepare(ref).error == "the hardware is broken", "the first error is the one that counts"
    assert driver.phase("a") is ClaimPhase.UNPREPARING, "it may be half set up, so it holds its device"
    driver.hardware.failing = set()
    assert names(driver.prepare(ref)) == ["gpu-0"]
    driver.stop()


def test_a_failed_tear_down_holds_the_device_and_comes_before_the_next_set_up(driver: DriverNode) -> None:
    ref = driver.server.allocate("a", "gpu-0")
    driver.prepare(ref)
    driver.hardware.failing = {"tear_down"}
    assert driver.unprepare(ref) == driver.prepare(ref).error == "the hardware is broken"
    assert "is held by" in driver.prepare(driver.server.allocate("b", "gpu-0")).error
    driver.hardware.failing = set()
    driver.hardware.calls.clear()
    assert names(driver.prepare(ref)) == ["gpu-0"]
    assert driver.hardware.calls == [("tear_down", "a"), ("set_up", "a")]
    assert driver.unprepare(ref) == ""
    assert names(driver.prepare(driver.server.allocate("b", "gpu-0"))) == ["gpu-0"]


def test_after_a_restart_it_is_refreshed_and_after_a_reboot_set_up_again(driver: DriverNode) -> None:
    ref = driver.server.allocate("a", "gpu-0")
    first = driver.prepare(ref)
    driver.restart()
    assert driver.hardware.calls == [("refresh", "a")]
    driver.restart("boot-2")
    assert driver.hardware.calls == []
    assert driver.prepare(ref) == first
    assert driver.hardware.calls == [("set_up", "a")]


def test_what_cannot_be_refreshed_at_the_start_is_set_up_again_when_asked_for(
    driver: DriverNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = driver.server.allocate("a", "gpu-0"), driver.server.allocate("b", "gpu-1")
    driver.prepare(first)
    driver.prepare(second)
    refresh = type(driver.hardware).refresh

    def failing(hooks, claim):  # type: ignore[no-untyped-def]
        if claim.uid == "a":
            raise OSError("a folder is in its place")
        refresh(hooks, claim)

    monkeypatch.setattr(type(driver.hardware), "refresh", failing)
    driver.restart()
    assert [event.detail for event in driver.events] == ["restore: a folder is in its place"]
    driver.server.down = True
    assert driver.prepare(second).devices
    assert driver.prepare(first).error
    driver.server.down = False
    assert names(driver.prepare(first)) == ["gpu-0"]
    assert ("set_up", "a") in driver.hardware.calls


def test_a_claim_of_an_older_version_is_set_up_again_and_not_torn_down(driver: DriverNode) -> None:
    """It does not say whether its set-up was finished, and a pod may be using it."""
    ref = driver.server.allocate("a", "gpu-0")
    state = ClaimInfoState("a", ref.name, ref.namespace, driver_states={GPU: DriverState((Device(POOL, "gpu-0"),))})
    driver.cache.put(ClaimInfo(state))
    driver.restart()
    assert (driver.phase("a"), driver.hardware.calls) == (None, [])
    assert names(driver.prepare(ref)) == ["gpu-0"]
    assert driver.hardware.calls == [("set_up", "a")]


def test_a_damaged_claim_can_be_unprepared(driver: DriverNode) -> None:
    ref = driver.server.allocate("a", "gpu-0")
    driver.prepare(ref)
    driver.stop()
    damage.empty(driver.directory, "a")
    driver.start()
    assert driver.unprepare(ref) == ""
    assert (len(driver.cache), driver.hardware.holdings()) == (0, {})


def test_a_lost_directory_is_reported_as_such(driver: DriverNode) -> None:
    (driver.directory / ".lock").unlink()
    assert "lock file" in driver.prepare(driver.server.allocate("a", "gpu-0")).error
    assert driver.kinds() == ["state-lost"]


def test_a_callback_that_fails_fails_nothing_else(directory: Path, caplog: pytest.LogCaptureFixture) -> None:
    driver = DriverNode(directory)
    driver.preparer = ClaimPreparer(driver.cache, driver.hardware, on_event=lambda event: 1 / 0)
    assert driver.prepare(driver.server.allocate("a", "gpu-0")).devices
    driver.server.down = True
    assert driver.prepare(driver.server.claims["a"].ref).devices
    assert "callback failed on a answered-from-memory event" in caplog.text
    driver.stop()
