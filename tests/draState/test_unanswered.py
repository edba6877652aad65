"""Look-ups without an answer: memory is used only if the API server cannot be reached at all, and is checked later."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from draState import ClaimRef, DriverClaim, OpaqueConfig, ServerUnreachable
from draState.metrics import PreparerMetrics

from .driverside import DriverNode, names


@pytest.fixture
def node(directory: Path) -> Iterator[DriverNode]:
    node = DriverNode(directory)
    yield node
    node.stop()


@pytest.fixture
def ref(node: DriverNode) -> ClaimRef:
    ref = node.server.allocate("a", "gpu-0")
    assert names(node.prepare(ref)) == ["gpu-0"]
    return ref


class Forbidden(Exception):
    """As clients raise it: with many lines, some of which quote the answer."""

    def __str__(self) -> str:
        return "(403)\nReason: Forbidden\nHTTP response body: secret"


def refuse(node: DriverNode, monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    def look_up(ref: ClaimRef) -> DriverClaim:
        raise error

    monkeypatch.setattr(node.server, "look_up", look_up)


@pytest.mark.parametrize("error", [Forbidden(), OSError("404 Not Found"), TimeoutError("slow"), ConnectionResetError()])
def test_a_refusal_is_an_answer_and_memory_is_not_used(
    node: DriverNode, ref: ClaimRef, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    node.server.allocate("a", "gpu-1")  # kubelet was down, and the claim was allocated again
    with monkeypatch.context() as patched:
        refuse(node, patched, error)
        answer = node.prepare(ref)
    assert "its allocation cannot be read" in answer.error
    assert answer.devices == ()
    assert names(node.prepare(ref)) == ["gpu-1"]
    assert node.preparer.answered_from_memory == 0


def test_a_server_that_hangs_is_not_absent(directory: Path) -> None:
    node = DriverNode(directory, look_up_seconds=0.05)
    ref = node.server.allocate("a", "gpu-0")
    assert node.prepare(ref).devices
    released = node.server.hanging = threading.Event()
    assert "no answer within 0.05 s" in node.prepare(ref).error
    assert node.preparer.look_ups.refusal == "", "slow, but it has refused nothing"
    released.set()
    node.server.hanging = None
    assert node.prepare(ref).devices
    node.stop()


def test_a_client_s_error_reaches_kubelet_in_one_line(
    node: DriverNode, ref: ClaimRef, monkeypatch: pytest.MonkeyPatch
) -> None:
    refuse(node, monkeypatch, Forbidden())
    assert node.prepare(ref).error.endswith("its allocation cannot be read: Forbidden: (403)")
    refuse(node, monkeypatch, ValueError("x" * 5000))
    assert len(node.prepare(ref).error) < 400
    node.hardware.failing, node.hardware.error = {"tear_down"}, Forbidden()
    assert node.unprepare(ref) == "Forbidden: (403)"


def test_a_refusal_is_remembered_until_the_server_answers(
    node: DriverNode, ref: ClaimRef, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patched:
        refuse(node, patched, Forbidden())
        node.prepare(ref)
        assert node.preparer.look_ups.refusal == "Forbidden: (403)"
        node.preparer.review.confirm()
        assert node.preparer.look_ups.refusal, "it still refuses"
    node.preparer.review.confirm()
    assert node.preparer.look_ups.refusal == ""


@pytest.mark.parametrize("error", [ServerUnreachable("no route"), ConnectionRefusedError("refused")])
def test_an_answer_from_memory_is_looked_up_again(
    node: DriverNode, ref: ClaimRef, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    with monkeypatch.context() as patched:
        refuse(node, patched, error)
        assert names(node.prepare(ref)) == ["gpu-0"]
        node.preparer.review.confirm()
    assert node.preparer.look_ups.refusal == ""
    node.preparer.review.confirm()
    assert node.preparer.review.outdated == {}
    assert node.kinds() == ["answered-from-memory"]


@pytest.mark.parametrize("change", ["devices", "configs", "gone"])
def test_an_answer_from_memory_that_was_wrong_is_reported_until_it_is_put_right(
    node: DriverNode, ref: ClaimRef, change: str
) -> None:
    registry = CollectorRegistry()
    PreparerMetrics(node.preparer, registry)
    node.server.down = True
    assert names(node.prepare(ref)) == ["gpu-0"]
    if change == "devices":
        node.server.allocate("a", "gpu-1")
    elif change == "configs":
        node.server.allocate("a", "gpu-0", configs=(OpaqueConfig({"mode": "slow"}),))
    else:
        del node.server.claims["a"]
    node.server.down = False

    for _ in range(2):
        node.preparer.review.confirm()

    assert node.preparer.review.outdated.keys() == {"a"}
    assert node.kinds() == ["answered-from-memory", "outdated"]
    assert 'dra_resource_claims_outdated{claim_uid="a"} 1.0' in generate_latest(registry).decode()
    if change == "gone":
        assert node.unprepare(ref) == ""
    else:
        assert node.prepare(ref).devices
    assert node.preparer.review.outdated == {}
    assert "claims_outdated{" not in generate_latest(registry).decode()


def test_a_prepare_with_an_answer_needs_no_confirmation(node: DriverNode, ref: ClaimRef) -> None:
    node.server.down = True
    node.prepare(ref)
    node.server.down = False
    node.prepare(ref)
    node.server.allocate("a", "gpu-1")
    node.preparer.review.confirm()
    assert node.preparer.review.outdated == {}
