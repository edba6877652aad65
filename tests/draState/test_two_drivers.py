"""Two drivers of one process share a cache: each touches only its own part of a claim."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from checkpointmanager.testing import damage
from draState import ClaimPhase, ClaimRef

from .drivers import race
from .driverside import GPU, NIC, TwoDrivers, names


@pytest.fixture
def two(directory: Path) -> Iterator[TwoDrivers]:
    two = TwoDrivers(directory)
    yield two
    two.stop()


@pytest.fixture
def ref(two: TwoDrivers) -> ClaimRef:
    """One claim with a device of each driver, both prepared."""
    two.gpu.server.allocate("a", "gpu-0")
    ref = two.nic.server.allocate("a", "eth-0")
    assert names(two.gpu.prepare(ref)) == ["gpu-0"]
    assert names(two.nic.prepare(ref)) == ["eth-0"]
    return ref


def test_an_unprepare_leaves_the_other_driver_s_devices_held(two: TwoDrivers, ref: ClaimRef) -> None:
    assert two.gpu.unprepare(ref) == ""

    assert two.gpu.hardware.holdings() == {}
    assert two.nic.hardware.holdings() == {"eth-0": "a"}
    assert (two.gpu.phase("a"), two.nic.phase("a")) == (None, ClaimPhase.PREPARED)
    two.nic.server.down = True
    assert names(two.nic.prepare(ref)) == ["eth-0"], "from memory"
    two.restart()
    assert names(two.nic.prepare(ref)) == ["eth-0"], "from memory"
    assert two.nic.unprepare(ref) == ""
    assert (two.nic.hardware.holdings(), len(two.cache)) == ({}, 0)


def test_a_claim_of_the_other_driver_is_no_orphan_and_not_released(two: TwoDrivers) -> None:
    ref = two.nic.server.allocate("a", "eth-0")
    two.nic.prepare(ref)

    assert two.gpu.preparer.review.look() == {}, "gpu's look-up finds no device of gpu"
    for force in (False, True):
        assert "no device is held for it" in two.gpu.preparer.release("a", force=force)

    assert two.gpu.unprepare(ref) == "", "a claim that the driver does not know"
    assert two.nic.hardware.holdings() == {"eth-0": "a"}
    assert two.nic.phase("a") is ClaimPhase.PREPARED


def test_one_driver_s_orphan_is_released_and_the_other_s_part_stays(two: TwoDrivers, ref: ClaimRef) -> None:
    del two.gpu.server.claims["a"]
    assert two.gpu.preparer.review.look().keys() == {"a"}
    assert two.nic.preparer.review.look() == {}

    assert two.gpu.preparer.release("a") == ""

    assert two.gpu.preparer.review.orphans == {}
    assert (two.gpu.hardware.holdings(), two.nic.hardware.holdings()) == ({}, {"eth-0": "a"})


def test_a_set_up_that_failed_is_not_answered_because_the_other_driver_succeeded(two: TwoDrivers) -> None:
    two.gpu.server.allocate("a", "gpu-0")
    ref = two.nic.server.allocate("a", "eth-0")
    two.nic.hardware.failing = {"set_up"}
    assert two.nic.prepare(ref).error
    two.nic.hardware.failing = set()
    two.gpu.prepare(ref)
    two.nic.hardware.calls.clear()

    assert names(two.nic.prepare(ref)) == ["eth-0"]

    assert two.nic.hardware.calls == [("set_up", "a")]


def test_after_a_reboot_each_driver_sets_up_its_own_part(two: TwoDrivers, ref: ClaimRef) -> None:
    two.restart("boot-2")
    assert names(two.gpu.prepare(ref)) == ["gpu-0"], "the record now carries this boot's id"
    two.restart("boot-2")
    two.nic.hardware.calls.clear()

    two.nic.server.down = True
    assert "cannot be read" in two.nic.prepare(ref).error
    two.nic.server.down = False
    assert names(two.nic.prepare(ref)) == ["eth-0"]

    assert ("set_up", "a") in two.nic.hardware.calls


def test_of_a_damaged_claim_each_driver_holds_its_own_devices(two: TwoDrivers, ref: ClaimRef) -> None:
    two.stop()
    damage.empty(two.directory, "a")
    (two.directory / ".previous-a").unlink(missing_ok=True)
    two.start()

    for driver, device in ((two.gpu, "gpu-0"), (two.nic, "eth-0")):
        other = driver.server.allocate("b", device)
        assert "whose state is damaged" in driver.prepare(other).error
    assert names(two.gpu.prepare(ref)) == ["gpu-0"], "heals its own part"
    assert two.nic.cache.holders(NIC, None, "eth-0") == {"a"}
    assert names(two.nic.prepare(ref)) == ["eth-0"]
    two.nic.hardware.calls.clear()
    assert two.gpu.unprepare(ref) == two.nic.unprepare(ref) == ""
    assert (two.gpu.hardware.holdings(), two.nic.hardware.holdings(), len(two.cache)) == ({}, {}, 0)


def test_both_drivers_at_once_lose_nothing(two: TwoDrivers) -> None:
    """The last one to unprepare deletes the record; whoever prepares meanwhile finds its part again."""
    rounds = 40
    ref = two.nic.server.allocate("a", "eth-0")
    two.gpu.server.allocate("a", "gpu-0")
    two.nic.prepare(ref)
    wrong: list[str] = []

    def come_and_go() -> None:
        for _ in range(rounds):
            two.gpu.prepare(ref)
            wrong.extend(filter(None, [two.gpu.unprepare(ref)]))

    def stay() -> None:
        for _ in range(rounds):
            wrong.extend(filter(None, [two.nic.unprepare(ref)]))
            two.nic.prepare(ref)
            if two.nic.phase("a") is not ClaimPhase.PREPARED:
                wrong.append("nic's part is gone")

    race(come_and_go, stay)
    assert wrong == []
    assert two.cache.holders(NIC, None, "eth-0") == {"a"}
    assert two.cache.holders(GPU, None, "gpu-0") == set()
    assert two.nic.hardware.holdings() == {"eth-0": "a"}
