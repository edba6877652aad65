"""What the users of a cluster see: events on claims and pods, and the status of devices. No call waits for either."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import kubernetes_validate
import pytest

from dra_agent.rehearsal import Node
from draState.plugin import ApiServer, Condition, Credentials, DeviceStatus, HeldClaims, NetworkData
from draState.plugin._reports import AT_ONCE, WAITING, Letter, Outbox
from draState.plugin.rehearsal import LocalApiServer

from .conversation import claim_for, prepare, unprepare, until

VERSIONS_OF_KUBERNETES = ["1.34", "1.35", "1.36", "1.37"]


def shown(cluster: LocalApiServer, name: str) -> list[Any]:
    return list(cluster.claim(name)["status"].get("devices") or [])


def test_a_few_are_sent_at_a_time_and_the_oldest_of_too_many_is_dropped() -> None:
    """The limits of a flood, which no agent in a test gets near."""
    sent: list[str] = []

    class Server(ApiServer):
        def send(self, method: str, target: str, body: Mapping[str, Any], kind: str) -> None:
            sent.append(target)

    outbox = Outbox(Server(Credentials("127.0.0.1", 1), 1))
    for number in range(WAITING + 1):
        outbox.put(str(number), Letter("POST", str(number), {}, "application/json"))
    outbox.send()
    assert sent == [str(number) for number in range(1, AT_ONCE + 1)]


@pytest.mark.parametrize(("status", "stays"), [(503, True), (429, True), (401, True), (403, False)])
def test_what_the_server_cannot_take_now_is_sent_later_and_what_it_refuses_is_logged_once(
    node: Node, cluster: LocalApiServer, status: int, stays: bool
) -> None:
    claims = [claim_for(cluster, node, uid, f"gpu-{n}") for n, uid in enumerate("ab")]
    agent = node.start()
    for claim in claims:
        prepare(node, claim)
    until(lambda: all(shown(cluster, claim.name) for claim in claims))
    cluster.failing = status
    for claim in claims:
        assert unprepare(node, claim) == "", "which waits for no report"
    before = cluster.requests["resourceclaims"]
    until(lambda: cluster.requests["resourceclaims"] >= before + 2)
    until(lambda: stays or "not reported to the cluster" in agent.log)
    cluster.failing = 0
    if stays:
        until(lambda: not any(shown(cluster, claim.name) for claim in claims))
    assert agent.log.count("not reported to the cluster") == (0 if stays else 1)


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
    claim = claim_for(cluster, node, "a", "gpu-0")
    agent = node.start()
    prepare(node, claim)
    agent.kill()
    cluster.claim(claim.name)["status"]["devices"] = []  # as if it had been killed before it reported
    agent = node.start()
    until(lambda: len(shown(cluster, claim.name)) == 1)
    agent.terminate()
    node.reboot(boot)
    node.start()
    assert unprepare(node, claim) == ""
    until(lambda: shown(cluster, claim.name) == [])


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

    assert len({event["metadata"]["name"] for event in cluster.events}) == len(cluster.events)
    for event in cluster.events:
        for version in VERSIONS_OF_KUBERNETES:
            assert kubernetes_validate.validate(event, version, strict=True) == version
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


def test_an_event_is_not_reported_again_after_a_restart(node: Node, cluster: LocalApiServer) -> None:
    claim = claim_for(cluster, node, "a", "gpu-0")
    agent = node.start()
    prepare(node, claim)
    cluster.forget_claim(claim.name)
    for _ in range(2):
        agent.kill()
        before = cluster.requests["events"]
        agent = node.start()
        until(lambda: cluster.requests["events"] >= before + 1)  # noqa: B023
    assert [event["reason"] for event in cluster.events] == ["ClaimOrphaned"]
