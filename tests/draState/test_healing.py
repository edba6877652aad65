"""Damaged and lost records: whose devices stay held, and which records are written anew without kubelet."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from checkpointmanager.testing import damage
from draState import ClaimPhase, ClaimRef, Device, OpaqueConfig
from draState.metrics import PreparerMetrics

from .driverside import GPU, PARTITION, POOL, DriverNode, names


@pytest.fixture
def node(directory: Path) -> Iterator[DriverNode]:
    node = DriverNode(directory)
    yield node
    node.stop()


@pytest.fixture
def ref(node: DriverNode) -> ClaimRef:
    ref = node.server.allocate("a", "gpu-0")
    node.prepare(ref)
    return ref


def lose(node: DriverNode, *, previous: bool = False, file: bool = False, shows_traces: bool = True) -> None:
    """Restart with a damaged record; `previous` and `file` say what is left of it."""
    node.stop()
    if file:
        damage.empty(node.directory, "a")
    else:
        (node.directory / "a.json").unlink()
    if not previous:
        (node.directory / ".previous-a").unlink(missing_ok=True)
    node.start(shows_traces=shows_traces)


def thief(node: DriverNode) -> str:
    """The error of another claim that was given the device."""
    return node.prepare(node.server.allocate("b", "gpu-0")).error


def test_a_lost_record_is_told_from_a_new_node(node: DriverNode, ref: ClaimRef) -> None:
    lose(node)

    assert node.preparer.review.lost == {"a"}
    assert node.kinds() == ["record-lost"]
    assert "is held by" in thief(node)
    assert node.hardware.holdings() == {"gpu-0": "a"}, "a pod is using it"
    node.restart()
    assert node.preparer.review.lost == {"a"}, "until it is settled"


def test_a_driver_that_cannot_look_for_traces_starts_all_the_same(
    node: DriverNode, ref: ClaimRef, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(type(node.hardware), "traces", lambda _: 1 / 0)
    node.restart()
    assert [event.detail for event in node.events] == ["look for traces: ZeroDivisionError: division by zero"]
    assert names(node.prepare(ref)) == ["gpu-0"]


def test_a_lost_record_is_rebuilt_where_the_api_server_agrees(node: DriverNode, ref: ClaimRef) -> None:
    lose(node)
    node.server.down = True
    node.preparer.review.heal()
    assert node.preparer.review.lost == {"a"}
    node.server.down = False

    node.preparer.review.heal()

    assert (node.preparer.review.lost, node.cache.report().degraded) == (frozenset(), False)
    assert node.kinds() == ["record-lost", "healed"]
    node.restart()
    claim = node.cache.get("a")
    assert claim
    assert claim.name == ("default", "claim-a")
    assert set(claim.state.pod_uids) == {"pod-of-a"}
    assert "is held by" in thief(node)
    node.hardware.calls.clear()
    assert names(node.prepare(ref)) == ["gpu-0"]
    assert node.hardware.calls == [("set_up", "a")], "nothing proves that the set-up was complete"
    assert node.unprepare(ref) == ""
    assert node.hardware.torn_down[0].driver_data == PARTITION
    assert (node.hardware.holdings(), len(node.cache)) == ({}, 0)


@pytest.mark.parametrize("file", [False, True])
def test_where_the_api_server_disagrees_the_devices_stay_held(node: DriverNode, ref: ClaimRef, file: bool) -> None:
    node.server.allocate("a", "gpu-1")
    lose(node, file=file)

    node.preparer.review.heal()

    assert "other devices" in node.preparer.review.unhealed["a"]
    assert node.cache.report().unknown.keys() == {"a"}
    assert "is held by" in thief(node)
    assert node.preparer.release("a", force=True) == ""
    assert node.hardware.holdings() == {}
    assert node.preparer.review.lost == node.preparer.review.unhealed.keys() == set()
    assert thief(node) == ""


@pytest.mark.parametrize("file", [False, True])
def test_a_claim_that_the_api_server_does_not_have_is_an_orphan_even_without_a_name(
    node: DriverNode, ref: ClaimRef, file: bool
) -> None:
    del node.server.claims["a"]
    lose(node, file=file)

    assert node.preparer.review.look().keys() == {"a"}

    assert node.preparer.release("a") == ""
    assert (node.hardware.holdings(), len(node.cache)) == ({}, 0)


@pytest.mark.parametrize("previous", [False, True])
def test_a_damaged_record_is_healed_without_kubelet(node: DriverNode, ref: ClaimRef, previous: bool) -> None:
    """Kubelet prepares only for a new sandbox, so the claim would stay unknown as long as its pod runs."""
    lose(node, file=True, previous=previous)
    assert node.cache.report().degraded

    node.preparer.review.heal()

    assert not node.cache.report().degraded
    assert "is held by" in thief(node)
    assert [event.kind for event in node.events if event.kind != "failed"] == ["unknown", "healed"]
    node.restart()
    assert not node.cache.report().degraded
    assert node.unprepare(ref) == ""
    assert node.hardware.torn_down[0].driver_data == PARTITION


def test_without_traces_a_record_is_healed_only_if_the_driver_s_data_is_legible(
    node: DriverNode, ref: ClaimRef
) -> None:
    lose(node, file=True, previous=True, shows_traces=False)  # the previous generation is from before set_up returned
    node.preparer.review.heal()
    assert "is not certain" in node.preparer.review.unhealed["a"]
    assert "is held by" in thief(node)


def ruin(node: DriverNode, *, digit: bool = False, shows_traces: bool = False) -> None:
    """Restart with a record that is beyond repair and still legible, and no previous generation.

    `digit`: the damage has turned gpu-0 into gpu-7.
    """
    node.stop()
    (node.directory / ".previous-a").unlink()
    file = node.directory / "a.json"
    blob = file.read_bytes().replace(b'"written":"20', b'"written":"99')
    file.write_bytes(blob.replace(b"gpu-0", b"gpu-7") if digit else blob)
    node.start(shows_traces=shows_traces)


def test_the_devices_that_damaged_bytes_name_are_held(node: DriverNode, ref: ClaimRef) -> None:
    ruin(node)

    assert "is held by" in thief(node)
    assert "whose state is damaged" in thief(node)
    assert node.preparer.review.unknown_devices == set()
    assert "unknown-devices" not in node.kinds()
    assert names(node.prepare(ref)) == ["gpu-0"]
    assert not node.cache.report().degraded


def test_what_only_damaged_bytes_name_is_never_torn_down(node: DriverNode, ref: ClaimRef) -> None:
    """Nothing vouches for a digit: the device may be another claim's."""
    other = node.server.allocate("b", "gpu-7")
    node.prepare(other)
    ruin(node, digit=True)

    node.preparer.review.heal()

    assert "other devices" in node.preparer.review.unhealed["a"]
    assert node.cache.holders(GPU, POOL, "gpu-0") == {"a"}, "as the API server says"
    assert names(node.prepare(ref)) == ["gpu-0"]
    assert node.unprepare(ref) == ""
    assert node.hardware.holdings() == {"gpu-7": "b"}


@pytest.mark.parametrize("data", [None, PARTITION])
def test_a_record_is_healed_from_its_damaged_bytes_only_if_the_driver_keeps_no_data(
    node: DriverNode, data: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_up = type(node.hardware).set_up
    monkeypatch.setattr(
        type(node.hardware), "set_up", lambda hooks, claim: replace(set_up(hooks, claim), driver_data=data)
    )
    ref = node.server.allocate("a", "gpu-0")
    node.prepare(ref)
    ruin(node)

    node.preparer.review.heal()

    assert (node.preparer.review.unhealed == {}) == (data is None)
    assert ("healed" in node.kinds()) == (data is None)
    assert "is held by" in thief(node)


def test_another_claim_s_bytes_are_no_evidence(node: DriverNode, ref: ClaimRef) -> None:
    node.prepare(node.server.allocate("c", "gpu-2"))
    node.stop()
    for name in ("a", "c"):
        (node.directory / f".previous-{name}").unlink()
    damage.swap(node.directory, "a", "c")
    node.start(shows_traces=False)
    assert node.preparer.review.unknown_devices == {"a", "c"}


def test_a_record_of_the_last_generation_but_one_is_healed_from_its_previous_one(
    node: DriverNode, ref: ClaimRef
) -> None:
    node.server.claims["a"] = replace(node.server.claims["a"], pods={"second": "pod-2"})
    node.prepare(ref)  # one more generation, after set_up has returned
    lose(node, file=True, previous=True, shows_traces=False)

    node.preparer.review.heal()

    claim = node.cache.get("a")
    assert claim
    assert (claim.unknown, set(claim.state.pod_uids)) == ("", {"second"})
    assert node.unprepare(ref) == ""
    assert node.hardware.torn_down[0].driver_data == PARTITION


def test_an_unprepare_that_was_under_way_is_not_healed_into_a_prepared_claim(node: DriverNode, ref: ClaimRef) -> None:
    node.hardware.failing = {"tear_down"}
    assert node.unprepare(ref)
    lose(node, file=True, previous=True)  # the previous generation is `prepared`, the damaged one `unpreparing`
    node.preparer.review.heal()
    assert node.phase("a") is not ClaimPhase.PREPARED
    node.server.down = True
    assert node.prepare(ref).error


def test_if_nothing_is_known_the_api_server_says_what_to_hold(node: DriverNode, ref: ClaimRef) -> None:
    registry = CollectorRegistry()
    lose(node, file=True, shows_traces=False)
    PreparerMetrics(node.preparer, registry)
    assert node.preparer.review.unknown_devices == {"a"}
    assert node.kinds() == ["unknown", "unknown-devices"]
    assert 'dra_resource_claims_unknown_devices{claim_uid="a"} 1.0' in generate_latest(registry).decode()

    for _ in range(2):
        node.preparer.review.heal()

    assert node.preparer.review.unknown_devices == set()
    assert "claims_unknown_devices{" not in generate_latest(registry).decode()
    assert "nothing shows" in node.preparer.review.unhealed["a"]
    assert "is held by" in thief(node)
    assert node.cache.report().unknown.keys() == {"a"}, "held, but not believed"
    assert names(node.prepare(ref)) == ["gpu-0"]
    assert not node.cache.report().degraded


def test_a_device_that_another_claim_got_meanwhile_is_not_given_back(node: DriverNode, ref: ClaimRef) -> None:
    lose(node, file=True, shows_traces=False)
    node.hardware._file(Device(POOL, "gpu-0")).unlink()
    assert thief(node) == "", "its devices are not known"
    node.hardware.shows_traces = True
    node.hardware._file(Device(POOL, "gpu-0")).write_text("a")

    node.preparer.review.heal()

    assert "is held by claim default/claim-b" in node.preparer.review.unhealed["a"]
    node.hardware._file(Device(POOL, "gpu-0")).write_text("b")


def test_configs_that_changed_meanwhile_are_set_up_by_the_next_prepare(node: DriverNode, ref: ClaimRef) -> None:
    config = OpaqueConfig({"mode": "fast"})
    node.server.claims["a"] = replace(node.server.claims["a"], configs=(config,))
    lose(node)
    node.preparer.review.heal()
    node.hardware.calls.clear()
    assert names(node.prepare(ref)) == ["gpu-0"]
    assert node.hardware.calls == [("set_up", "a")]


def test_pods_that_share_a_claim_later_are_known_after_the_next_look(node: DriverNode, ref: ClaimRef) -> None:
    """Kubelet calls once per claim. After a restart the names of pods come back with the same look."""
    node.server.claims["a"] = replace(node.server.claims["a"], pods={"pod-of-a": "pod", "late": "pod-2"})
    node.preparer.review.look()
    assert [claim.uid for claim in node.cache.of_pod("late")] == ["a"]
    assert ("refresh", "a") in node.hardware.calls
    node.restart()
    node.preparer.review.look()
    claim = node.cache.get("a")
    assert claim
    assert claim.annotations == {"pod-of-a": "pod", "late": "pod-2"}
    assert claim.prepared
    node.server.down = True
    assert names(node.prepare(ref)) == ["gpu-0"]
