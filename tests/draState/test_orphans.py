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
def node(directory: Path) -> Iterator[DriverNode]:
    node = DriverNode(directory)
    for uid, device in (("a", "gpu-0"), ("b", "gpu-1")):
        assert node.prepare(node.server.allocate(uid, device)).devices
    yield node
    node.stop()


def test_what_is_gone_is_found_and_named_once(node: DriverNode) -> None:
    assert node.preparer.review.look() == {}
    del node.server.claims["a"]
    for _ in range(2):
        assert {uid: orphan.why for uid, orphan in node.preparer.review.look().items()} == {"a": "claim a is not there"}
    assert node.kinds() == ["orphaned"]
    assert node.hardware.holdings() == {"gpu-0": "a", "gpu-1": "b"}, "nothing was released"


def test_an_event_names_the_claim_and_its_pods_even_if_the_record_is_gone(node: DriverNode) -> None:
    del node.server.claims["a"]
    assert node.preparer.release("a") == ""
    (event,) = node.events
    assert (event.kind, event.detail) == ("released", "claim a is not there")
    assert (event.ref, event.pods) == (ClaimRef("a", "claim-a", "default"), {"pod-of-a": "pod"})


def test_what_has_other_devices_now_is_found(node: DriverNode) -> None:
    node.server.allocate("a", "gpu-7")
    assert "has other devices now" in node.preparer.review.look()["a"].why
    node.server.allocate("a", "gpu-0", "gpu-7")
    assert node.preparer.review.look() == {}, "one of its devices is still its own"


@pytest.mark.parametrize("error", [ConnectionRefusedError("down"), ClaimInvalid("not a ResourceClaim")])
def test_an_inconclusive_answer_makes_no_orphan(
    node: DriverNode, error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    def look_up(ref: ClaimRef) -> DriverClaim:
        raise error

    monkeypatch.setattr(node.server, "look_up", look_up)
    assert node.preparer.review.look() == {}


def test_while_the_api_server_is_down_an_orphan_stays_one(node: DriverNode) -> None:
    del node.server.claims["a"]
    found = node.preparer.review.look()["a"]
    node.server.down = True
    assert node.preparer.review.look() == {"a": found}
    assert node.preparer.review.incomplete
    node.server.down = False
    node.preparer.review.look()
    assert not node.preparer.review.incomplete
    assert found.age >= 0


def test_an_orphan_is_released_and_forgotten(node: DriverNode) -> None:
    del node.server.claims["a"]
    node.preparer.review.look()
    assert node.preparer.release("a") == ""
    assert node.preparer.review.orphans == {}
    assert node.hardware.holdings() == {"gpu-1": "b"}
    assert node.prepare(node.server.allocate("c", "gpu-0")).devices


def test_what_is_no_orphan_is_released_by_force_only(node: DriverNode) -> None:
    assert "still has its devices" in node.preparer.release("a")
    node.server.down = True
    assert "cannot be looked up" in node.preparer.release("a")
    assert node.hardware.holdings() == {"gpu-0": "a", "gpu-1": "b"}
    assert node.preparer.release("a", force=True) == ""
    assert node.hardware.holdings() == {"gpu-1": "b"}
    assert "is not known here" in node.preparer.release("a")


def test_an_orphan_that_is_still_in_use_is_released_by_force_only(node: DriverNode) -> None:
    """Its container runs on: kubelet was down, or found the claim prepared and did not ask again."""
    node.server.allocate("a", "gpu-7")
    node.hardware.running = {"a": ["pid 7 (python)"]}
    assert node.preparer.review.look()["a"].why.endswith("has other devices now; still used by pid 7 (python)")

    assert "is still used by pid 7 (python)" in node.preparer.release("a")
    node.hardware.running = None
    assert "may be in use: no hostPID" in node.preparer.release("a")

    assert "is held by" in node.prepare(node.server.allocate("b2", "gpu-0")).error
    assert node.preparer.release("a", force=True) == ""
    node.hardware.running = {}
    assert node.prepare(node.server.allocate("b2", "gpu-0")).devices


def test_a_driver_that_cannot_tell_who_uses_a_device_releases_by_force_only(
    node: DriverNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(type(node.hardware), "users", DriverHooks.users)
    del node.server.claims["a"]
    assert "may be in use" in node.preparer.release("a")
    assert node.hardware.holdings() == {"gpu-0": "a", "gpu-1": "b"}


def test_an_orphan_that_came_back_is_not_released(node: DriverNode) -> None:
    """Between finding it and releasing it, the claim was allocated again."""
    kept = node.server.claims.pop("a")
    node.preparer.review.look()
    node.server.claims["a"] = kept
    assert "still has its devices" in node.preparer.release("a")


def test_more_orphans_than_are_looked_up_at_once_are_all_found(node: DriverNode) -> None:
    for n in range(40):
        assert node.prepare(node.server.allocate(f"u{n}", f"dev-{n}")).devices
    node.server.claims.clear()
    assert len(node.preparer.review.look()) == 42


def test_metrics_count_phases_and_name_orphans(node: DriverNode) -> None:
    registry = CollectorRegistry()
    PreparerMetrics(node.preparer, registry)
    del node.server.claims["a"]
    node.preparer.review.look()
    node.hardware.failing = {"set_up"}
    node.prepare(node.server.allocate("c", "gpu-2"))
    node.server.down = True
    node.prepare(node.server.claims["b"].ref)
    text = generate_latest(registry).decode()
    for line in (
        'dra_resource_claims_phase{phase="prepared"} 2.0',
        'dra_resource_claims_phase{phase="preparing"} 1.0',
        'dra_resource_claims_phase{phase="unpreparing"} 0.0',
        'dra_resource_claims_orphaned{claim_uid="a"} 1.0',
        "dra_resource_claims_answered_from_memory_total 1.0",
    ):
        assert line in text
