"""Damaged and lost records: whose devices stay held, and which records are written anew without kubelet."""

from __future__ import annotations

from dataclasses import replace

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from checkpointmanager.testing import damage
from draState import ClaimPhase, ClaimRef, Device, OpaqueConfig
from draState.metrics import PreparerMetrics

from .driverside import GPU, PARTITION, POOL, DriverNode, names


@pytest.fixture
def ref(driver: DriverNode) -> ClaimRef:
    ref = driver.server.allocate("a", "gpu-0")
    driver.prepare(ref)
    return ref


def lose(driver: DriverNode, *, previous: bool = False, file: bool = False, shows_traces: bool = True) -> None:
    """Restart with a damaged record; `previous` and `file` say what is left of it."""
    driver.stop()
    if file:
        damage.empty(driver.directory, "a")
    else:
        (driver.directory / "a.json").unlink()
    if not previous:
        (driver.directory / ".previous-a").unlink(missing_ok=True)
    driver.start(shows_traces=shows_traces)


def thief(driver: DriverNode) -> str:
    """The error of another claim that was given the device."""
    return driver.prepare(driver.server.allocate("b", "gpu-0")).error


def test_a_lost_record_is_told_from_a_new_node(driver: DriverNode, ref: ClaimRef) -> None:
    lose(driver)

    assert driver.preparer.review.lost == {"a"}
    assert driver.kinds() == ["record-lost"]
    assert "is held by" in thief(driver)
    assert driver.hardware.holdings() == {"gpu-0": "a"}, "a pod is using it"
    driver.restart()
    assert driver.preparer.review.lost == {"a"}, "until it is settled"


def test_a_driver_that_cannot_look_for_traces_starts_all_the_same(
    driver: DriverNode, ref: ClaimRef, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(type(driver.hardware), "traces", lambda _: 1 / 0)
    driver.restart()
    assert [event.detail for event in driver.events] == ["look for traces: ZeroDivisionError: division by zero"]
    assert names(driver.prepare(ref)) == ["gpu-0"]


def test_a_lost_record_is_rebuilt_where_the_api_server_agrees(driver: DriverNode, ref: ClaimRef) -> None:
    lose(driver)
    driver.server.down = True
    driver.preparer.review.heal()
    assert driver.preparer.review.lost == {"a"}
    driver.server.down = False

    driver.preparer.review.heal()

    assert (driver.preparer.review.lost, driver.cache.report().degraded) == (frozenset(), False)
    assert driver.kinds() == ["record-lost", "healed"]
    driver.restart()
    claim = driver.claim("a")
    assert claim.name == ("default", "claim-a")
    assert set(claim.state.pod_uids) == {"pod-of-a"}
    assert "is held by" in thief(driver)
    driver.hardware.calls.clear()
    assert names(driver.prepare(ref)) == ["gpu-0"]
    assert driver.hardware.calls == [("set_up", "a")], "nothing proves that the set-up was complete"
    assert driver.unprepare(ref) == ""
    assert driver.hardware.torn_down[0].driver_data == PARTITION
    assert (driver.hardware.holdings(), len(driver.cache)) == ({}, 0)


@pytest.mark.parametrize("file", [False, True])
def test_where_the_api_server_disagrees_the_devices_stay_held(driver: DriverNode, ref: ClaimRef, file: bool) -> None:
    driver.server.allocate("a", "gpu-1")
    lose(driver, file=file)

    driver.preparer.review.heal()

    assert "other devices" in driver.preparer.review.unhealed["a"]
    assert driver.cache.report().unknown.keys() == {"a"}
    assert "is held by" in thief(driver)
    assert driver.preparer.release("a", force=True) == ""
    assert driver.hardware.holdings() == {}
    assert driver.preparer.review.lost == driver.preparer.review.unhealed.keys() == set()
    assert thief(driver) == ""


@pytest.mark.parametrize("file", [False, True])
def test_a_claim_that_the_api_server_does_not_have_is_an_orphan_even_without_a_name(
    driver: DriverNode, ref: ClaimRef, file: bool
) -> None:
    del driver.server.claims["a"]
    lose(driver, file=file)

    assert driver.preparer.review.look().keys() == {"a"}

    assert driver.preparer.release("a") == ""
    assert (driver.hardware.holdings(), len(driver.cache)) == ({}, 0)


@pytest.mark.parametrize("previous", [False, True])
def test_a_damaged_record_is_healed_without_kubelet(driver: DriverNode, ref: ClaimRef, previous: bool) -> None:
    """Kubelet prepares only for a new sandbox, so the claim would stay unknown as long as its pod runs."""
    lose(driver, file=True, previous=previous)
    assert driver.cache.report().degraded

    driver.preparer.review.heal()

    assert not driver.cache.report().degraded
    assert "is held by" in thief(driver)
    assert [event.kind for event in driver.events if event.kind != "failed"] == ["unknown", "healed"]
    driver.restart()
    assert not driver.cache.report().degraded
    assert driver.unprepare(ref) == ""
    assert driver.hardware.torn_down[0].driver_data == PARTITION


def test_without_traces_a_record_is_healed_only_if_the_driver_s_data_is_legible(
    driver: DriverNode, ref: ClaimRef
) -> None:
    lose(driver, file=True, previous=True, shows_traces=False)  # the previous generation is from before set_up returned
    driver.preparer.review.heal()
    assert "is not certain" in driver.preparer.review.unhealed["a"]
    assert "is held by" in thief(driver)


def ruin(driver: DriverNode, *, digit: bool = False, shows_traces: bool = False) -> None:
    """Restart with a record that is beyond repair and still legible, and no previous generation.

    `digit`: the damage has turned gpu-0 into gpu-7.
    """
    driver.stop()
    (driver.directory / ".previous-a").unlink()
    file = driver.directory / "a.json"
    blob = file.read_bytes().replace(b'"written":"20', b'"written":"99')
    file.write_bytes(blob.replace(b"gpu-0", b"gpu-7") if digit else blob)
    driver.start(shows_traces=shows_traces)


def test_the_devices_that_damaged_bytes_name_are_held(driver: DriverNode, ref: ClaimRef) -> None:
    ruin(driver)

    assert "is held by" in thief(driver)
    assert "whose state is damaged" in thief(driver)
    assert driver.preparer.review.unknown_devices == set()
    assert "unknown-devices" not in driver.kinds()
    assert names(driver.prepare(ref)) == ["gpu-0"]
    assert not driver.cache.report().degraded


def test_what_only_damaged_bytes_name_is_never_torn_down(driver: DriverNode, ref: ClaimRef) -> None:
    """Nothing vouches for a digit: the device may be another claim's."""
    other = driver.server.allocate("b", "gpu-7")
    driver.prepare(other)
    ruin(driver, digit=True)

    driver.preparer.review.heal()

    assert "other devices" in driver.preparer.review.unhealed["a"]
    assert driver.cache.holders(GPU, POOL, "gpu-0") == {"a"}, "as the API server says"
    assert names(driver.prepare(ref)) == ["gpu-0"]
    assert driver.unprepare(ref) == ""
    assert driver.hardware.holdings() == {"gpu-7": "b"}


@pytest.mark.parametrize("data", [None, PARTITION])
def test_a_record_is_healed_from_its_damaged_bytes_only_if_the_driver_keeps_no_data(
    driver: DriverNode, data: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_up = type(driver.hardware).set_up
    monkeypatch.setattr(
        type(driver.hardware), "set_up", lambda hooks, claim: replace(set_up(hooks, claim), driver_data=data)
    )
    ref = driver.server.allocate("a", "gpu-0")
    driver.prepare(ref)
    ruin(driver)

    driver.preparer.review.heal()

    assert (driver.preparer.review.unhealed == {}) == (data is None)
    assert ("healed" in driver.kinds()) == (data is None)
    assert "is held by" in thief(driver)


def test_another_claim_s_bytes_are_no_evidence(driver: DriverNode, ref: ClaimRef) -> None:
    driver.prepare(driver.server.allocate("c", "gpu-2"))
    driver.stop()
    for name in ("a", "c"):
        (driver.directory / f".previous-{name}").unlink()
    damage.swap(driver.directory, "a", "c")
    driver.start(shows_traces=False)
    assert driver.preparer.review.unknown_devices == {"a", "c"}


def test_an_unprepare_that_was_under_way_is_not_healed_into_a_prepared_claim(driver: DriverNode, ref: ClaimRef) -> None:
    driver.hardware.failing = {"tear_down"}
    assert driver.unprepare(ref)
    lose(driver, file=True, previous=True)  # the previous generation is `prepared`, the damaged one `unpreparing`
    driver.preparer.review.heal()
    assert driver.phase("a") is not ClaimPhase.PREPARED
    driver.server.down = True
    assert driver.prepare(ref).error


def test_if_nothing_is_known_the_api_server_says_what_to_hold(driver: DriverNode, ref: ClaimRef) -> None:
    registry = CollectorRegistry()
    lose(driver, file=True, shows_traces=False)
    PreparerMetrics(driver.preparer, registry)
    assert driver.preparer.review.unknown_devices == {"a"}
    assert driver.kinds() == ["unknown", "unknown-devices"]
    assert 'dra_resource_claims_unknown_devices{claim_uid="a"} 1.0' in generate_latest(registry).decode()

    for _ in range(2):
        driver.preparer.review.heal()

    assert driver.preparer.review.unknown_devices == set()
    assert "claims_unknown_devices{" not in generate_latest(registry).decode()
    assert "nothing shows" in driver.preparer.review.unhealed["a"]
    assert "is held by" in thief(driver)
    assert driver.cache.report().unknown.keys() == {"a"}, "held, but not believed"
    assert names(driver.prepare(ref)) == ["gpu-0"]
    assert not driver.cache.report().degraded


def test_a_device_that_another_claim_got_meanwhile_is_not_given_back(driver: DriverNode, ref: ClaimRef) -> None:
    lose(driver, file=True, shows_traces=False)
    driver.hardware._file(Device(POOL, "gpu-0")).unlink()
    assert thief(driver) == "", "its devices are not known"
    driver.hardware.shows_traces = True
    driver.hardware._file(Device(POOL, "gpu-0")).write_text("a")

    driver.preparer.review.heal()

    assert "is held by claim default/claim-b" in driver.preparer.review.unhealed["a"]
    driver.hardware._file(Device(POOL, "gpu-0")).write_text("b")


def test_configs_that_changed_meanwhile_are_set_up_by_the_next_prepare(driver: DriverNode, ref: ClaimRef) -> None:
    config = OpaqueConfig({"mode": "fast"})
    driver.server.claims["a"] = replace(driver.server.claims["a"], configs=(config,))
    lose(driver)
    driver.preparer.review.heal()
    driver.hardware.calls.clear()
    assert names(driver.prepare(ref)) == ["gpu-0"]
    assert driver.hardware.calls == [("set_up", "a")]


def test_pods_that_share_a_claim_later_are_known_after_the_next_look(driver: DriverNode, ref: ClaimRef) -> None:
    """Kubelet calls once per claim. After a restart the names of pods come back with the same look."""
    driver.server.claims["a"] = replace(driver.server.claims["a"], pods={"pod-of-a": "pod", "late": "pod-2"})
    driver.preparer.review.look()
    assert [claim.uid for claim in driver.cache.of_pod("late")] == ["a"]
    assert ("refresh", "a") in driver.hardware.calls
    driver.restart()
    driver.preparer.review.look()
    claim = driver.claim("a")
    assert claim.annotations == {"pod-of-a": "pod", "late": "pod-2"}
    assert claim.prepared
    driver.server.down = True
    assert names(driver.prepare(ref)) == ["gpu-0"]
