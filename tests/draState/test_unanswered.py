"""Look-ups without an answer: memory is used only if the API server cannot be reached at all, and is checked later."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from draState import ClaimRef, DriverClaim, OpaqueConfig, ServerUnreachable
from draState.metrics import PreparerMetrics

from .driverside import DriverNode, names


@pytest.fixture
def ref(driver: DriverNode) -> ClaimRef:
    ref = driver.server.allocate("a", "gpu-0")
    assert names(driver.prepare(ref)) == ["gpu-0"]
    return ref


class Forbidden(Exception):
    """As clients raise it: with many lines, some of which quote the answer."""

    def __str__(self) -> str:
        return "(403)\nReason: Forbidden\nHTTP response body: secret"


def refuse(driver: DriverNode, monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    def look_up(ref: ClaimRef) -> DriverClaim:
        raise error

    monkeypatch.setattr(driver.server, "look_up", look_up)


@pytest.mark.parametrize("error", [Forbidden(), OSError("404 Not Found"), TimeoutError("slow"), ConnectionResetError()])
def test_a_refusal_is_an_answer_and_memory_is_not_used(
    driver: DriverNode, ref: ClaimRef, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    driver.server.allocate("a", "gpu-1")  # kubelet was down, and the claim was allocated again
    with monkeypatch.context() as patched:
        refuse(driver, patched, error)
        answer = driver.prepare(ref)
    assert "its allocation cannot be read" in answer.error
    assert answer.devices == ()
    assert names(driver.prepare(ref)) == ["gpu-1"]
    assert driver.preparer.answered_from_memory == 0


def test_a_server_that_hangs_is_not_absent(directory: Path) -> None:
    driver = DriverNode(directory, look_up_seconds=0.05)
    ref = driver.server.allocate("a", "gpu-0")
    assert driver.prepare(ref).devices
    released = driver.server.hanging = threading.Event()
    assert "no answer within 0.05 s" in driver.prepare(ref).error
    assert driver.preparer.look_ups.refusal == "", "slow, but it has refused nothing"
    released.set()
    driver.server.hanging = None
    assert driver.prepare(ref).devices
    driver.stop()


def test_a_client_s_error_reaches_kubelet_in_one_line(
    driver: DriverNode, ref: ClaimRef, monkeypatch: pytest.MonkeyPatch
) -> None:
    refuse(driver, monkeypatch, Forbidden())
    assert driver.prepare(ref).error.endswith("its allocation cannot be read: Forbidden: (403)")
    refuse(driver, monkeypatch, ValueError("x" * 5000))
    assert len(driver.prepare(ref).error) < 400
    driver.hardware.failing, driver.hardware.error = {"tear_down"}, Forbidden()
    assert driver.unprepare(ref) == "Forbidden: (403)"


def test_a_refusal_is_remembered_until_the_server_answers(
    driver: DriverNode, ref: ClaimRef, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patched:
        refuse(driver, patched, Forbidden())
        driver.prepare(ref)
        assert driver.preparer.look_ups.refusal == "Forbidden: (403)"
        driver.preparer.review.confirm()
        assert driver.preparer.look_ups.refusal, "it still refuses"
    driver.preparer.review.confirm()
    assert driver.preparer.look_ups.refusal == ""


@pytest.mark.parametrize("error", [ServerUnreachable("no route"), ConnectionRefusedError("refused")])
def test_an_answer_from_memory_is_looked_up_again(
    driver: DriverNode, ref: ClaimRef, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    with monkeypatch.context() as patched:
        refuse(driver, patched, error)
        assert names(driver.prepare(ref)) == ["gpu-0"]
        driver.preparer.review.confirm()
    assert driver.preparer.look_ups.refusal == ""
    driver.preparer.review.confirm()
    assert driver.preparer.review.outdated == {}
    assert driver.kinds() == ["answered-from-memory"]


@pytest.mark.parametrize("change", ["devices", "configs", "gone"])
def test_an_answer_from_memory_that_was_wrong_is_reported_until_it_is_put_right(
    driver: DriverNode, ref: ClaimRef, change: str
) -> None:
    registry = CollectorRegistry()
    PreparerMetrics(driver.preparer, registry)
    driver.server.down = True
    assert names(driver.prepare(ref)) == ["gpu-0"]
    if change == "devices":
        driver.server.allocate("a", "gpu-1")
    elif change == "configs":
        driver.server.allocate("a", "gpu-0", configs=(OpaqueConfig({"mode": "slow"}),))
    else:
        del driver.server.claims["a"]
    driver.server.down = False

    for _ in range(2):
        driver.preparer.review.confirm()

    assert driver.preparer.review.outdated.keys() == {"a"}
    assert driver.kinds() == ["answered-from-memory", "outdated"]
    assert 'dra_resource_claims_outdated{claim_uid="a"} 1.0' in generate_latest(registry).decode()
    if change == "gone":
        assert driver.unprepare(ref) == ""
    else:
        assert driver.prepare(ref).devices
    assert driver.preparer.review.outdated == {}
    assert "claims_outdated{" not in generate_latest(registry).decode()


def test_a_prepare_with_an_answer_needs_no_confirmation(driver: DriverNode, ref: ClaimRef) -> None:
    driver.server.down = True
    driver.prepare(ref)
    driver.server.down = False
    driver.prepare(ref)
    driver.server.allocate("a", "gpu-1")
    driver.preparer.review.confirm()
    assert driver.preparer.review.outdated == {}
