"""Claims that only the driver still knows are found, named, and released on request."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from draState import ClaimInvalid, ClaimRef, DriverClaim, DriverHooks
from draState.metrics import PreparerMetrics

from .driverside import DriverNode


@pytest.fixture
def driver(directory: Path) -> Iterator[DriverNode]:
    driver = DriverNode(directory)
    for uid, device in (("a", "gpu-0"), ("b", "gpu-1")):
        assert driver.prepare(driver.server.allocate(uid, device)).devices
    yield driver
    driver.stop()


def test_what_is_gone_is_found_and_named_once(driver: DriverNode) -> None:
    assert driver.preparer.review.look() == {}
    del driver.server.claims["a"]
    for _ in range(2):
        assert {uid: orphan.why for uid, orphan in driver.preparer.review.look().items()} == {
            "a": "claim a is not there"
        }
    assert driver.kinds() == ["orphaned"]
    assert driver.hardware.holdings() == {"gpu-0": "a", "gpu-1": "b"}, "nothing was released"


def test_an_event_names_the_claim_and_its_pods_even_if_the_record_is_gone(driver: DriverNode) -> None:
    del driver.server.claims["a"]
    assert driver.preparer.release("a") == ""
    (event,) = driver.events
    assert (event.kind, event.detail) == ("released", "claim a is not there")
    assert (event.ref, event.pods) == (ClaimRef("a", "claim-a", "default"), {"pod-of-a": "pod"})


def test_what_has_other_devices_now_is_found(driver: DriverNode) -> None:
    driver.server.allocate("a", "gpu-7")
    assert "has other devices now" in driver.preparer.review.look()["a"].why
    driver.server.allocate("a", "gpu-0", "gpu-7")
    assert driver.preparer.review.look() == {}, "one of its devices is still its own"


@pytest.mark.parametrize("error", [ConnectionRefusedError("down"), ClaimInvalid("not a ResourceClaim")])
def test_an_inconclusive_answer_makes_no_orphan(
    driver: DriverNode, error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    def look_up(ref: ClaimRef) -> DriverClaim:
        raise error

    monkeypatch.setattr(driver.server, "look_up", look_up)
    assert driver.preparer.review.look() == {}


def test_while_the_api_server_is_down_an_orphan_stays_one(driver: DriverNode) -> None:
    del driver.server.claims["a"]
    found = driver.preparer.review.look()["a"]
    driver.server.down = True
    assert driver.preparer.review.look() == {"a": found}
    assert driver.preparer.review.incomplete
    driver.server.down = False
    driver.preparer.review.look()
    assert not driver.preparer.review.incomplete
    assert found.age >= 0


def test_an_orphan_is_released_and_forgotten(driver: DriverNode) -> None:
    del driver.server.claims["a"]
    driver.preparer.review.look()
    assert driver.preparer.release("a") == ""
    assert driver.preparer.review.orphans == {}
    assert driver.hardware.holdings() == {"gpu-1": "b"}
    assert driver.prepare(driver.server.allocate("c", "gpu-0")).devices


def test_what_is_no_orphan_is_released_by_force_only(driver: DriverNode) -> None:
    assert "still has its devices" in driver.preparer.release("a")
    driver.server.down = True
    assert "cannot be looked up" in driver.preparer.release("a")
    assert driver.hardware.holdings() == {"gpu-0": "a", "gpu-1": "b"}
    assert driver.preparer.release("a", force=True) == ""
    assert driver.hardware.holdings() == {"gpu-1": "b"}
    assert "is not known here" in driver.preparer.release("a")


def test_an_orphan_that_is_still_in_use_is_released_by_force_only(driver: DriverNode) -> None:
    """Its container runs on: kubelet was down, or found the claim prepared and did not ask again."""
    driver.server.allocate("a", "gpu-7")
    driver.hardware.running = {"a": ["pid 7 (python)"]}
    assert driver.preparer.review.look()["a"].why.endswith("has other devices now; still used by pid 7 (python)")

    assert "is still used by pid 7 (python)" in driver.preparer.release("a")
    driver.hardware.running = None
    assert "may be in use: no hostPID" in driver.preparer.release("a")

    assert "is held by" in driver.prepare(driver.server.allocate("b2", "gpu-0")).error
    assert driver.preparer.release("a", force=True) == ""
    driver.hardware.running = {}
    assert driver.prepare(driver.server.allocate("b2", "gpu-0")).devices


def test_a_driver_that_cannot_tell_who_uses_a_device_releases_by_force_only(
    driver: DriverNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(type(driver.hardware), "users", DriverHooks.users)
    del driver.server.claims["a"]
    assert "may be in use" in driver.preparer.release("a")
    assert driver.hardware.holdings() == {"gpu-0": "a", "gpu-1": "b"}


def test_more_orphans_than_are_looked_up_at_once_are_all_found(driver: DriverNode) -> None:
    for n in range(40):
        assert driver.prepare(driver.server.allocate(f"u{n}", f"dev-{n}")).devices
    driver.server.claims.clear()
    assert len(driver.preparer.review.look()) == 42


def test_metrics_count_phases_and_name_orphans(driver: DriverNode) -> None:
    registry = CollectorRegistry()
    PreparerMetrics(driver.preparer, registry)
    del driver.server.claims["a"]
    driver.preparer.review.look()
    driver.hardware.failing = {"set_up"}
    driver.prepare(driver.server.allocate("c", "gpu-2"))
    driver.server.down = True
    driver.prepare(driver.server.claims["b"].ref)
    text = generate_latest(registry).decode()
    for line in (
        'dra_resource_claims_phase{phase="prepared"} 2.0',
        'dra_resource_claims_phase{phase="preparing"} 1.0',
        'dra_resource_claims_phase{phase="unpreparing"} 0.0',
        'dra_resource_claims_orphaned{claim_uid="a"} 1.0',
        "dra_resource_claims_answered_from_memory_total 1.0",
    ):
        assert line in text
