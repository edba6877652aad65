"""Which pods a change of health concerns, and what their status then contains."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from checkpointmanager import MemoryStore
from draState import (
    ClaimInfo,
    ClaimInfoCache,
    ClaimInfoState,
    ContainerClaim,
    Device,
    DeviceHealth,
    DriverState,
    Health,
    HealthChange,
    Pod,
    ResourceClaim,
    ResourceHealth,
    ResourceStatus,
    concerned_pods,
    pod_health,
    read_pod,
)

from .apiobjects import claim_object, generated, named, owned_by, pod_object, templated
from .health import GPU, HEALTHY, NIC, UNHEALTHY, UNKNOWN, Untimed


class Kubelet:
    """A cache of claims beside the health of their devices; `concerned` has the pods of each change."""

    def __init__(self, directory: Path) -> None:
        self.claims = ClaimInfoCache(directory)
        self.concerned: list[list[str]] = []
        self.time = 1000.0
        self.health = Untimed(MemoryStore(), on_change=self._changed, clock=lambda: self.time)

    def holds(self, name: str, *devices: Device, pods: tuple[str, ...] = ("1",), driver: str = GPU) -> None:
        uid = f"uid-of-{name}"
        known = self.claims.get(uid)
        drivers = {**(known.state.driver_states if known else {}), driver: DriverState(devices)}
        self.claims.put(ClaimInfo(ClaimInfoState(uid, name, "ns", frozenset(pods), drivers)))

    def report(self, *devices: DeviceHealth, driver: str = GPU) -> None:
        self.health.report(driver, devices)

    def _changed(self, change: HealthChange) -> None:
        self.concerned.append(sorted(concerned_pods(self.claims, change)))


@pytest.fixture
def kubelet(directory: Path) -> Iterator[Kubelet]:
    kubelet = Kubelet(directory)
    yield kubelet
    kubelet.health.close()
    kubelet.claims.close()


def pod_of(*uses: ContainerClaim) -> Pod:
    claims = {use.claim: ResourceClaim(f"uid-of-{use.claim}", use.claim, "ns", {}) for use in uses}
    return Pod("1", "pod", "ns", claims, {"main": uses})


def healthy(name: str = "d0", message: str = "", health: Health = HEALTHY, pool: str = "p") -> DeviceHealth:
    return DeviceHealth(pool, name, health, message)


# Which pods.


def test_a_change_concerns_the_pods_that_use_the_device_or_a_share_of_it(kubelet: Kubelet) -> None:
    kubelet.holds("a", Device("p", "d0", "share-1"), pods=("1", "2"))
    kubelet.holds("b", Device("p", "d0", "share-2"), pods=("3",))
    kubelet.holds("other", Device("p", "d1"), pods=("4",))
    kubelet.report(healthy(health=UNHEALTHY))
    assert kubelet.concerned == [["1", "2", "3"]]


def test_a_change_of_an_unused_device_concerns_no_pod(kubelet: Kubelet) -> None:
    kubelet.holds("c", Device("p", "d0"))
    kubelet.report(healthy("free", health=UNHEALTHY))
    kubelet.report(healthy(pool="other"), healthy("free", health=UNHEALTHY))
    kubelet.report(healthy(), driver=NIC)
    assert kubelet.concerned == [[]] * 3


# The status of a pod.

FINE = (ResourceHealth(f"{GPU}/p/d0", HEALTHY, "fine"),)


@pytest.mark.parametrize(
    ("pod", "claim"),
    [
        (pod_object(named("direct", "direct"), main={"claims": [{"name": "direct"}]}), "direct"),
        (pod_object(named("mine", "theirs"), main={"claims": [{"name": "mine"}]}), "theirs"),
        (
            pod_object(templated("t"), status=generated(t="pod-t-x7"), main={"claims": [{"name": "t"}]}),
            "pod-t-x7",
        ),
        (
            pod_object(named("mine", "c"), status=generated(mine="c"), main={"claims": [{"name": "mine"}]}),
            "c",
        ),
    ],
)
@pytest.mark.parametrize("share_id", [None, "share"])
def test_a_container_has_the_health_of_its_claims_under_the_pods_names_for_them(
    kubelet: Kubelet, pod: dict[str, object], claim: str, share_id: str | None
) -> None:
    read = read_pod(pod, {claim: claim_object(claim, owners=owned_by("1"))})
    kubelet.holds(claim, Device("p", "d0", share_id))
    kubelet.report(healthy(message="fine"))
    (key,) = read.claims
    assert pod_health(kubelet.claims, kubelet.health, read) == {"main": (ResourceStatus(f"claim:{key}", FINE),)}


@pytest.mark.parametrize(
    ("request_name", "of_device", "reported"),
    [
        ("base/sub", ("base",), True),
        ("other/sub", ("base",), False),
        ("base", ("base",), True),
        ("", ("base",), True),
        ("other", ("base",), False),
        ("other", (), True),
        ("b", ("a", "b"), True),
    ],
)
def test_a_request_has_the_health_of_its_own_devices(
    kubelet: Kubelet, request_name: str, of_device: tuple[str, ...], reported: bool
) -> None:
    kubelet.holds("c", Device("p", "d0", request_names=of_device))
    kubelet.report(healthy(message="fine"))
    pod = pod_of(ContainerClaim("c", request_name))
    name = f"claim:c/{request_name}" if request_name else "claim:c"
    expected = {"main": (ResourceStatus(name, FINE),)} if reported else {}
    assert pod_health(kubelet.claims, kubelet.health, pod) == expected


@pytest.mark.parametrize(
    ("ids", "health", "message", "expected"),
    [
        (("x.com/gpu=0",), HEALTHY, "ok", ResourceHealth("x.com/gpu=0", HEALTHY, "ok")),
        (("x.com/gpu=0",), HEALTHY, "", ResourceHealth("x.com/gpu=0", HEALTHY)),
        (("x.com/gpu=0",), UNHEALTHY, "hot", ResourceHealth("x.com/gpu=0", UNHEALTHY, "hot")),
        (("x.com/gpu=0",), UNKNOWN, "checking", ResourceHealth("x.com/gpu=0", UNKNOWN, "checking")),
        ((), UNHEALTHY, "hot", ResourceHealth(f"{GPU}/p/d0", UNHEALTHY, "hot")),
        (("x.com/gpu=0", "x.com/net=1"), HEALTHY, "", ResourceHealth("x.com/gpu=0", HEALTHY)),
    ],
)
def test_a_resource_is_called_by_its_first_cdi_id(
    kubelet: Kubelet, ids: tuple[str, ...], health: Health, message: str, expected: ResourceHealth
) -> None:
    kubelet.holds("c", Device("p", "d0", cdi_device_ids=ids))
    kubelet.report(healthy(message=message, health=health))
    status = ResourceStatus("claim:c", (expected,))
    assert pod_health(kubelet.claims, kubelet.health, pod_of(ContainerClaim("c"))) == {"main": (status,)}


def test_a_device_without_a_report_or_with_an_expired_one_is_unknown(kubelet: Kubelet) -> None:
    kubelet.holds("c", Device("p", "d0"))
    unknown = {"main": (ResourceStatus("claim:c", (ResourceHealth(f"{GPU}/p/d0", UNKNOWN),)),)}
    assert pod_health(kubelet.claims, kubelet.health, pod_of(ContainerClaim("c"))) == unknown
    kubelet.report(healthy(message="fine"))
    kubelet.time += 31
    assert pod_health(kubelet.claims, kubelet.health, pod_of(ContainerClaim("c"))) == unknown


@pytest.mark.parametrize("order", [(HEALTHY, UNKNOWN, UNHEALTHY), (UNHEALTHY, HEALTHY, UNKNOWN)])
def test_devices_of_one_cdi_id_are_one_resource_as_healthy_as_the_worst(
    kubelet: Kubelet, order: tuple[Health, ...]
) -> None:
    kubelet.holds("c", *(Device("p", f"d{n}", cdi_device_ids=("x.com/all=1",)) for n in range(4)))
    for count, worst in ((1, order[0]), (3, UNHEALTHY)):
        reports = [healthy(f"d{n}", f"says {n}", order[n] if n < count else order[0]) for n in range(4)]
        kubelet.report(*reports)
        ((status,),) = pod_health(kubelet.claims, kubelet.health, pod_of(ContainerClaim("c"))).values()
        assert [(resource.resource_id, resource.health) for resource in status.resources] == [("x.com/all=1", worst)]


def test_claims_that_are_not_prepared_not_needed_or_for_extended_resources_are_left_out(kubelet: Kubelet) -> None:
    kubelet.holds("extended", Device("p", "d0"))
    kubelet.holds("empty")
    claims = {
        "gone": ResourceClaim("nobody", "gone", "ns", {}),
        "none": None,
        "": ResourceClaim("uid-of-extended", "extended", "ns", {}),
        "empty": ResourceClaim("uid-of-empty", "empty", "ns", {}),
    }
    pod = Pod("1", "pod", "ns", claims, {"main": tuple(map(ContainerClaim, claims)), "other": ()})
    assert pod_health(kubelet.claims, kubelet.health, pod) == {}


def test_a_claim_of_two_drivers_has_the_devices_of_both(kubelet: Kubelet) -> None:
    kubelet.holds("c", Device("p", "d0"))
    kubelet.holds("c", Device("p", "d0"), driver=NIC)
    kubelet.report(healthy(health=UNHEALTHY), driver=NIC)
    ((status,),) = pod_health(kubelet.claims, kubelet.health, pod_of(ContainerClaim("c"))).values()
    assert [(r.resource_id, r.health) for r in status.resources] == [
        (f"{GPU}/p/d0", UNKNOWN),
        (f"{NIC}/p/d0", UNHEALTHY),
    ]
