"""What the users of a cluster see: events on claims and pods, and the status of devices. No call waits for either."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import kubernetes_validate
import pytest

from draState import ClaimEvent, ClaimEventKind, ClaimRef
from draState import Device as ClaimDevice
from draState.plugin import ApiError, Condition, DeviceStatus, HeldClaims, NetworkData
from draState.plugin._reports.devicestatus import DeviceStatuses
from draState.plugin._reports.events import REASONS, Events
from draState.plugin._reports.outbox import AT_ONCE, WAITING, Letter, Outbox
from draState.plugin.rehearsal import LocalApiServer, Node

from .conversation import claim_for, prepare, unprepare, until

VERSIONS_OF_KUBERNETES = ["1.34", "1.35", "1.36", "1.37"]
REF = ClaimRef("u1", "claim-1", "ns")


class Server:
    """Takes letters, or answers with a status."""

    def __init__(self) -> None:
        self.sent: list[tuple[str, str, Mapping[str, Any], str]] = []
        self.status = 0

    def send(self, *letter: Any) -> None:
        if self.status:
            raise ApiError("PATCH", self.status, "no")
        self.sent.append(letter)


@pytest.fixture
def server() -> Server:
    return Server()


@pytest.fixture
def outbox(server: Server) -> Outbox:
    return Outbox(server)  # type: ignore[arg-type]


def letter(text: str = "") -> Letter:
    return Letter("POST", "/x", {"kind": "Event", "text": text}, "application/json")


def test_a_later_letter_replaces_an_earlier_one_of_the_same_key(outbox: Outbox, server: Server) -> None:
    for text in ("old", "new"):
        outbox.put("k", letter(text))
    outbox.send()
    outbox.send()
    assert [body["text"] for _, _, body, _ in server.sent] == ["new"]


@pytest.mark.parametrize(("status", "stays"), [(503, True), (429, True), (401, True), (403, False), (409, False)])
def test_what_the_server_cannot_take_now_stays_and_what_it_refuses_goes(
    outbox: Outbox, server: Server, status: int, stays: bool
) -> None:
    outbox.put("k", letter())
    server.status = status
    outbox.send()
    server.status = 0
    outbox.send()
    assert bool(server.sent) is stays


def test_a_refusal_is_logged_once(outbox: Outbox, server: Server, caplog: pytest.LogCaptureFixture) -> None:
    server.status = 403
    for number in range(3):
        outbox.put(str(number), letter())
    outbox.send()
    assert [record.message for record in caplog.records] == ["not reported to the cluster: API server: PATCH: 403 no"]


def test_a_few_are_sent_at_a_time_and_the_oldest_of_too_many_is_dropped(outbox: Outbox, server: Server) -> None:
    for number in range(WAITING + 1):
        outbox.put(str(number), letter(str(number)))
    outbox.send()
    assert [body["text"] for _, _, body, _ in server.sent] == [str(number) for number in range(1, AT_ONCE + 1)]


def events_of(event: ClaimEvent, server: Server, outbox: Outbox) -> list[Mapping[str, Any]]:
    Events(outbox, "gpu.example.com", "n1").happened(event)
    outbox.send()
    return [body for _, _, body, _ in server.sent]


@pytest.mark.parametrize("version", VERSIONS_OF_KUBERNETES)
@pytest.mark.parametrize("kind", REASONS)
def test_events_fit_the_published_schema(kind: ClaimEventKind, version: str, server: Server, outbox: Outbox) -> None:
    found = events_of(ClaimEvent(kind, "u1", "é" * 2000, REF, {"p1": "pod-1", "p2": ""}), server, outbox)
    assert [event["regarding"]["kind"] for event in found] == ["ResourceClaim", "Pod"], "p2 has no name yet"
    for event in found:
        assert kubernetes_validate.validate(dict(event), version, strict=True) == version


@pytest.mark.parametrize(
    "event",
    [
        ClaimEvent(ClaimEventKind.FAILED, "u1", "kubelet reports it", REF),
        ClaimEvent(ClaimEventKind.UNKNOWN, "u1", "its name is lost"),
    ],
)
def test_what_kubelet_reports_or_nobody_could_find_is_no_event(
    event: ClaimEvent, server: Server, outbox: Outbox
) -> None:
    assert events_of(event, server, outbox) == []


def test_the_same_event_has_the_same_name(server: Server, outbox: Outbox) -> None:
    for detail in ("why", "why", "another reason"):
        names = [
            each["metadata"]["name"]
            for each in events_of(ClaimEvent(ClaimEventKind.ORPHANED, "u1", detail, REF), server, outbox)
        ]
    assert names[0] == names[1] != names[2]


NIC = DeviceStatus(
    (Condition("Ready"), Condition("LinkUp", status=False, reason="NoCarrier", message="no cable")),
    {"vf": 3},
    NetworkData("net1", ("10.0.0.7/24", "fd00::7/64"), "02:00:00:00:00:01"),
)


@pytest.mark.parametrize("version", VERSIONS_OF_KUBERNETES)
@pytest.mark.parametrize("status", [NIC, DeviceStatus()])
def test_device_statuses_fit_the_published_schema(
    status: DeviceStatus, version: str, server: Server, outbox: Outbox
) -> None:
    device = ClaimDevice("pool", "nic-0", "1c5f4b1e-7b7d-4b0e-9d3c-000000000000")
    statuses = DeviceStatuses(outbox, "nic.example.com", "n1")
    for _ in range(2):  # once is enough
        statuses.report(REF, statuses.entries([(device, status)]))
    outbox.send()
    ((method, target, patch, kind),) = server.sent
    assert (method, kind) == ("PATCH", "application/apply-patch+yaml")
    assert target.endswith("/namespaces/ns/resourceclaims/claim-1/status?fieldManager=nic.example.com%2Fn1&force=true")
    spec = {"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": "c"}}]}}  # an apply leaves it out
    assert kubernetes_validate.validate({**patch, "spec": spec}, version, strict=True) == version


@pytest.mark.parametrize("wrong", [
    lambda: DeviceStatus(tuple(Condition(f"C{n}") for n in range(9))),
    lambda: DeviceStatus((Condition("Ready"), Condition("Ready"))),
    lambda: DeviceStatus(data={"secret": "x" * 11_000}),
    lambda: DeviceStatus(network=NetworkData(ips=("10.0.0.7",))),
    lambda: DeviceStatus(network=NetworkData(ips=("secret/24",))),
    lambda: DeviceStatus(network=NetworkData("x" * 257)),
    lambda: DeviceStatus(network=NetworkData(hardware_address="x" * 129)),
])  # fmt: skip
def test_what_the_api_server_would_refuse_is_refused_before(wrong: Any) -> None:
    with pytest.raises(ValueError, match=r"conditions|data|network|address"):
        wrong()


def test_a_claim_shows_its_devices_until_it_is_given_back(node: Node, cluster: LocalApiServer) -> None:
    claim = claim_for(cluster, node, "a", "gpu-0")
    theirs = {"driver": "nic.example.com", "pool": "p", "device": "nic-0"}
    cluster.claim(claim.name)["status"]["devices"] = [theirs]
    node.start()

    prepare(node, claim)

    until(lambda: len(cluster.claim(claim.name)["status"]["devices"]) == 2)
    ours = cluster.claim(claim.name)["status"]["devices"][1]
    assert (ours["driver"], ours["pool"], ours["device"]) == (node.driver, node.pool, "gpu-0")
    assert [(each["type"], each["status"]) for each in ours["conditions"]] == [("Ready", "True")]
    assert unprepare(node, claim) == ""
    until(lambda: cluster.claim(claim.name)["status"]["devices"] == [theirs])


@pytest.mark.parametrize("boot", ["boot-1", "boot-2"])
def test_a_killed_agent_s_reports_are_made_good_by_the_next_one(node: Node, cluster: LocalApiServer, boot: str) -> None:
    def shown() -> list[Any]:
        return list(cluster.claim(claim.name)["status"].get("devices") or [])

    claim = claim_for(cluster, node, "a", "gpu-0")
    agent = node.start()
    prepare(node, claim)
    agent.kill()
    cluster.claim(claim.name)["status"]["devices"] = []  # as if it had been killed before it reported
    agent = node.start()
    until(lambda: len(shown()) == 1)
    agent.terminate()
    node.reboot(boot)
    node.start()
    assert unprepare(node, claim) == ""
    until(lambda: shown() == [])


def test_users_see_why_the_state_of_a_claim_is_unknown_healed_or_released(node: Node, cluster: LocalApiServer) -> None:
    claim = claim_for(cluster, node, "a", "gpu-0")
    agent = node.start()
    prepare(node, claim)
    agent.terminate()
    node.file_of("a").write_bytes(b"")  # its previous generation, with its name, is still there
    agent = node.start()
    until(lambda: len(cluster.events) == 3)
    cluster.forget_claim(claim.name)
    with HeldClaims(str(node.folder / "p" / "dra.sock")) as held:
        assert {claim.orphan != "" for claim in held.list()} == {True}
        assert held.release("a") == ""
    until(lambda: [event["reason"] for event in cluster.events][-1] == "ClaimReleased")

    seen = {(event["reason"], event["regarding"]["kind"]) for event in cluster.events}
    assert seen == {
        ("ClaimStateUnknown", "ResourceClaim"),
        ("ClaimStateHealed", "ResourceClaim"),
        ("ClaimStateHealed", "Pod"),
        ("ClaimOrphaned", "ResourceClaim"),
        ("ClaimOrphaned", "Pod"),
        ("ClaimReleased", "ResourceClaim"),
        ("ClaimReleased", "Pod"),
    }
