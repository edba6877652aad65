"""The driver's side after failures, crashes, reboots and damage: no claim is answered that is not set up."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from checkpointmanager.testing import damage
from draState import ClaimInfo, ClaimInfoState, ClaimPhase, ClaimPreparer, Device, DriverState

from .drivers import Died
from .driverside import GPU, POOL, DriverNode, names


@pytest.fixture
def node(directory: Path) -> Iterator[DriverNode]:
    node = DriverNode(directory)
    yield node
    node.stop()


def crash_in(node: DriverNode, hook: str) -> None:
    node.hardware.failing, node.hardware.error = {hook}, Died()


def test_a_set_up_that_was_cut_off_is_never_answered_as_prepared(node: DriverNode) -> None:
    ref = node.server.allocate("a", "gpu-0", "gpu-1")
    crash_in(node, "set_up")
    with pytest.raises(Died):
        node.prepare(ref)
    node.restart()

    assert node.phase("a") is ClaimPhase.PREPARING
    node.server.down = True
    assert "cannot be read" in node.prepare(ref).error
    node.server.down = False
    assert "is held by claim" in node.prepare(node.server.allocate("b", "gpu-1")).error
    assert names(node.prepare(ref)) == ["gpu-0", "gpu-1"]
    assert node.hardware.holdings() == {"gpu-0": "a", "gpu-1": "a"}


def test_a_set_up_that_was_cut_off_is_torn_down_at_the_start_if_the_author_chose_so(directory: Path) -> None:
    node = DriverNode(directory, unfinished="tear_down")
    ref = node.server.allocate("a", "gpu-0", "gpu-1")
    crash_in(node, "set_up")
    with pytest.raises(Died):
        node.prepare(ref)
    node.restart()

    assert (len(node.cache), node.hardware.holdings()) == (0, {})
    assert node.hardware.torn_down[0].driver_data is None
    assert node.kinds() == ["unfinished"]
    node.stop()


@pytest.mark.parametrize("boot", ["boot-1", "boot-2"])
def test_a_tear_down_that_was_cut_off_is_finished_at_the_start(node: DriverNode, boot: str) -> None:
    ref = node.server.allocate("a", "gpu-0", "gpu-1")
    node.prepare(ref)
    crash_in(node, "tear_down")
    with pytest.raises(Died):
        node.unprepare(ref)
    node.restart(boot)

    assert (len(node.cache), node.hardware.holdings()) == (0, {})
    assert names(node.prepare(node.server.allocate("b", "gpu-1"))) == ["gpu-1"]


def test_a_tear_down_that_fails_at_the_start_is_tried_again_and_costs_no_other(node: DriverNode) -> None:
    first, second = node.server.allocate("a", "gpu-0"), node.server.allocate("b", "gpu-1")
    for ref in (first, second):
        node.prepare(ref)
    crash_in(node, "tear_down")
    with pytest.raises(Died):
        node.unprepare(first)
    node.restart(failing={"tear_down"})

    assert node.kinds() == ["unfinished", "failed"]
    assert node.prepare(second).devices
    assert node.phase("a") is ClaimPhase.UNPREPARING
    assert "is held by" in node.prepare(node.server.allocate("c", "gpu-0")).error
    node.restart()
    assert names(node.prepare(node.server.claims["c"].ref)) == ["gpu-0"]


def test_a_failed_set_up_is_kept_and_tried_again(node: DriverNode) -> None:
    ref = node.server.allocate("a", "gpu-0")
    node.hardware.failing = {"set_up"}
    assert node.prepare(ref).error == "the hardware is broken"
    assert node.phase("a") is ClaimPhase.PREPARING
    assert "is held by" in node.prepare(node.server.allocate("b", "gpu-0")).error
    node.hardware.failing = set()
    assert names(node.prepare(ref)) == ["gpu-0"]


def test_a_failed_set_up_is_torn_down_if_the_author_chose_so(directory: Path) -> None:
    node = DriverNode(directory, unfinished="tear_down")
    ref = node.server.allocate("a", "gpu-0")
    node.hardware.failing = {"set_up"}
    assert node.prepare(ref).error == "the hardware is broken"
    assert (len(node.cache), node.hardware.holdings()) == (0, {})
    node.hardware.failing = {"set_up", "tear_down"}
    assert node.prepare(ref).error == "the hardware is broken", "the first error is the one that counts"
    assert node.phase("a") is ClaimPhase.UNPREPARING, "it may be half set up, so it holds its device"
    node.hardware.failing = set()
    assert names(node.prepare(ref)) == ["gpu-0"]
    node.stop()


def test_a_failed_tear_down_holds_the_device_until_it_succeeds(node: DriverNode) -> None:
    ref = node.server.allocate("a", "gpu-0")
    node.prepare(ref)
    node.hardware.failing = {"tear_down"}
    assert node.unprepare(ref) == "the hardware is broken"
    assert "is held by" in node.prepare(node.server.allocate("b", "gpu-0")).error
    node.hardware.failing = set()
    assert node.unprepare(ref) == ""
    assert names(node.prepare(node.server.allocate("b", "gpu-0"))) == ["gpu-0"]


def test_a_prepare_after_a_failed_unprepare_tears_down_first(node: DriverNode) -> None:
    ref = node.server.allocate("a", "gpu-0")
    node.prepare(ref)
    node.hardware.failing = {"tear_down"}
    node.unprepare(ref)
    assert node.prepare(ref).error == "the hardware is broken"
    node.hardware.failing = set()
    node.hardware.calls.clear()
    assert names(node.prepare(ref)) == ["gpu-0"]
    assert node.hardware.calls == [("tear_down", "a"), ("set_up", "a")]


def test_after_a_restart_it_is_refreshed_and_after_a_reboot_set_up_again(node: DriverNode) -> None:
    ref = node.server.allocate("a", "gpu-0")
    first = node.prepare(ref)
    node.restart()
    assert node.hardware.calls == [("refresh", "a")]
    node.restart("boot-2")
    assert node.hardware.calls == []
    assert node.prepare(ref) == first
    assert node.hardware.calls == [("set_up", "a")]


def test_what_cannot_be_refreshed_at_the_start_is_set_up_again_when_asked_for(
    node: DriverNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = node.server.allocate("a", "gpu-0"), node.server.allocate("b", "gpu-1")
    node.prepare(first)
    node.prepare(second)
    refresh = type(node.hardware).refresh

    def failing(hooks, claim):  # type: ignore[no-untyped-def]
        if claim.uid == "a":
            raise OSError("a folder is in its place")
        refresh(hooks, claim)

    monkeypatch.setattr(type(node.hardware), "refresh", failing)
    node.restart()
    assert [event.detail for event in node.events] == ["restore: a folder is in its place"]
    node.server.down = True
    assert node.prepare(second).devices
    assert node.prepare(first).error
    node.server.down = False
    assert names(node.prepare(first)) == ["gpu-0"]
    assert ("set_up", "a") in node.hardware.calls


def test_a_claim_of_an_older_version_is_set_up_again_and_not_torn_down(node: DriverNode) -> None:
    """It does not say whether its set-up was finished, and a pod may be using it."""
    ref = node.server.allocate("a", "gpu-0")
    state = ClaimInfoState("a", ref.name, ref.namespace, driver_states={GPU: DriverState((Device(POOL, "gpu-0"),))})
    node.cache.put(ClaimInfo(state))
    node.restart()
    assert (node.phase("a"), node.hardware.calls) == (None, [])
    assert names(node.prepare(ref)) == ["gpu-0"]
    assert node.hardware.calls == [("set_up", "a")]


@pytest.mark.parametrize("generations", [1, 2])
def test_a_damaged_claim_holds_what_it_probably_has_and_is_healed_by_a_prepare(
    node: DriverNode, generations: int
) -> None:
    ref = node.server.allocate("a", "gpu-0")
    node.prepare(ref)
    node.stop()
    damage.empty(node.directory, "a")
    if generations == 1:
        (node.directory / ".previous-a").unlink(missing_ok=True)
    node.start()

    assert node.cache.report().unknown.keys() == {"a"}
    assert "whose state is damaged" in node.prepare(node.server.allocate("b", "gpu-0")).error
    node.server.down = True
    assert "cannot be read" in node.prepare(ref).error
    node.server.down = False
    assert names(node.prepare(ref)) == ["gpu-0"]
    assert not node.cache.report().degraded
    assert node.unprepare(ref) == ""
    assert node.hardware.holdings() == {}


def test_a_damaged_claim_can_be_unprepared(node: DriverNode) -> None:
    ref = node.server.allocate("a", "gpu-0")
    node.prepare(ref)
    node.stop()
    damage.empty(node.directory, "a")
    node.start()
    assert node.unprepare(ref) == ""
    assert (len(node.cache), node.hardware.holdings()) == (0, {})


def test_a_lost_directory_is_reported_as_such(node: DriverNode) -> None:
    (node.directory / ".lock").unlink()
    assert "lock file" in node.prepare(node.server.allocate("a", "gpu-0")).error
    assert node.kinds() == ["state-lost"]


def test_a_callback_that_fails_fails_nothing_else(directory: Path, caplog: pytest.LogCaptureFixture) -> None:
    node = DriverNode(directory)
    node.preparer = ClaimPreparer(node.cache, node.hardware, on_event=lambda event: 1 / 0)
    assert node.prepare(node.server.allocate("a", "gpu-0")).devices
    node.server.down = True
    assert node.prepare(node.server.claims["a"].ref).devices
    assert "callback failed on a answered-from-memory event" in caplog.text
    node.stop()
