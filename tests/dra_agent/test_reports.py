"""What the users of a cluster see: events on claims and pods, and the status of devices. No call waits for either."""

from __future__ import annotations

from typing import Any

import kubernetes_validate

from dra_agent.rehearsal import Node
from draState.plugin import HeldClaims
from draState.plugin.rehearsal import Claim, LocalApiServer

from .conversation import devices_of, prepare, unprepare, until

VERSIONS_OF_KUBERNETES = ["1.34", "1.35", "1.36", "1.37"]


def test_what_the_server_cannot_take_now_is_sent_later_and_what_it_refuses_is_logged_once(
    node: Node, cluster: LocalApiServer, claims: list[Claim]
) -> None:
    def shown() -> list[bool]:
        return [bool(cluster.claim(claim.name)["status"].get("devices")) for claim in claims]

    agent = node.start()
    until(lambda: all(shown()))
    for claim, status in zip(claims, (503, 429, 401), strict=True):
        cluster.failing = status
        assert unprepare(node, claim) == "", "which waits for no report"
        before = cluster.requests["resourceclaims"]
        until(lambda: cluster.requests["resourceclaims"] >= before + 2)  # noqa: B023
        cluster.failing = 0
        until(lambda: not shown()[claims.index(claim)])  # noqa: B023
    assert "not reported to the cluster" not in agent.log
    for claim in claims[:2]:
        assert not prepare(node, claim).error
    until(lambda: shown() == [True, True, False])
    cluster.failing = 403
    assert unprepare(node, claims[0]) == ""
    until(lambda: "not reported to the cluster" in agent.log)
    before = cluster.requests["resourceclaims"]
    assert unprepare(node, claims[1]) == ""
    until(lambda: cluster.requests["resourceclaims"] > before)
    cluster.failing = 0
    assert devices_of(prepare(node, claims[2])) == ["gpu-2"]
    until(lambda: shown()[2])
    assert shown()[0], "what was refused is not sent again"
    assert agent.log.count("not reported to the cluster") == 1


def test_a_claim_shows_its_devices_until_it_is_given_back_whichever_agent_does_it(
    node: Node, cluster: LocalApiServer, claims: list[Claim]
) -> None:
    """The last agent may have been killed before it reported, and after a reboot nothing is set up again at once."""

    def shown() -> list[Any]:
        return list(cluster.claim(claims[0].name)["status"].get("devices") or [])

    theirs = {"driver": "nic.example.com", "pool": "p", "device": "nic-0"}
    cluster.claim(claims[0].name)["status"]["devices"] = [theirs]
    agent = node.start()
    until(lambda: len(shown()) == 2)
    ours = shown()[1]
    assert (ours["driver"], ours["pool"], ours["device"]) == (node.driver, node.pool, "gpu-0")
    assert [(each["type"], each["status"]) for each in ours["conditions"]] == [("Ready", "True")]
    agent.kill()
    node.reboot("boot-2")
    node.start()
    assert unprepare(node, claims[0]) == ""
    until(lambda: shown() == [theirs])


def test_users_see_why_the_state_of_a_claim_is_unknown_healed_or_released(
    node: Node, cluster: LocalApiServer, claims: list[Claim]
) -> None:
    node.file_of("a").write_bytes(b"")  # its previous generation, with its name, is still there
    node.start()
    until(lambda: len(cluster.events) == 3)
    cluster.forget_claim(claims[0].name)
    with HeldClaims(str(node.folder / "p" / "dra.sock")) as held:
        assert [claim.uid for claim in held.list() if claim.orphan] == ["a"]
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


def test_an_event_is_not_reported_again_after_a_restart(
    node: Node, cluster: LocalApiServer, claims: list[Claim]
) -> None:
    cluster.forget_claim(claims[0].name)
    for _ in range(2):
        before = cluster.requests["events"]
        agent = node.start()
        until(lambda: cluster.requests["events"] >= before + 1)  # noqa: B023
        agent.kill()
    assert [event["reason"] for event in cluster.events] == ["ClaimOrphaned"]
