"""What an agent remembers across restarts, reboots, damage, and other versions of itself."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from dra_agent.rehearsal import Node
from draState.plugin.rehearsal import Claim, LocalApiServer

from .conversation import claim_for, devices_of, prepare, talk, unprepare, until

NEWER = str(Path(__file__).with_name("newer_agent.py"))
OLDER = str(Path(__file__).with_name("older_agent.py"))


def test_after_a_restart_it_answers_from_its_state_without_the_api_server(
    node: Node, cluster: LocalApiServer, claims: list[Claim]
) -> None:
    cluster.go_down()
    agent = node.start()
    assert devices_of(prepare(node, claims[0])) == ["gpu-0"]
    assert "dra_resource_claims_answered_from_memory_total 1.0" in agent.get("/metrics")[1]
    assert unprepare(node, claims[0]) == ""
    assert node.holdings() == node.cdi_holdings() == {"b": ("gpu-1",), "c": ("gpu-2",)}


def test_a_force_deleted_claim_is_not_prepared_again_and_can_be_unprepared(
    node: Node, cluster: LocalApiServer, claims: list[Claim]
) -> None:
    node.start()
    cluster.forget_claim(claims[0].name)
    assert "not found" in prepare(node, claims[0]).error
    assert unprepare(node, claims[0]) == ""
    assert "a" not in {**node.holdings(), **node.cdi_holdings()}


def test_after_a_reboot_it_prepares_anew_and_still_holds_what_was_held(
    node: Node, cluster: LocalApiServer, claims: list[Claim]
) -> None:
    node.reboot("boot-2")
    agent = node.start()
    assert node.cdi_holdings() == {}
    assert agent.details()["claims_of_an_earlier_boot"] == 3
    assert "is held by claim" in prepare(node, claim_for(cluster, node, "thief", "gpu-0")).error
    assert devices_of(prepare(node, claims[0])) == ["gpu-0"]
    assert node.cdi_holdings() == {"a": ("gpu-0",)}
    assert agent.details()["claims_of_an_earlier_boot"] == 2


def test_it_starts_degraded_with_a_damaged_claim_and_serves_the_others(
    node: Node, cluster: LocalApiServer, claims: list[Claim]
) -> None:
    blob = node.file_of("b").read_bytes()
    node.file_of("b").write_bytes(blob[: len(blob) // 2])
    cluster.go_down()

    agent = node.start()

    details = agent.details()
    assert (details["ready"], details["state"], list(details["unknown_claims"])) == (True, "degraded", ["b"])
    assert "checkpoint-verify" in details["unknown_claims"]["b"], "says what to do"
    metrics = agent.get("/metrics")[1]
    assert 'dra_resource_claims_unknown{claim_uid="b"} 1.0' in metrics
    assert f'checkpointmanager_damaged{{directory="{node.state}",reason="truncated"}} 1.0' in metrics
    assert "claim b: unknown: its devices stay held" in agent.log
    for claim in (claims[0], claims[2]):
        assert prepare(node, claim).devices, "from memory"
    assert unprepare(node, claims[0]) == ""
    cluster.listen()
    thief = prepare(node, claim_for(cluster, node, "thief", "gpu-1"))
    assert "UID b" in thief.error, "what its CDI file names stays held"
    assert devices_of(prepare(node, claims[1])) == ["gpu-1"]
    assert agent.details()["state"] == "good"


@pytest.mark.usefixtures("claims")
def test_any_change_to_the_cdi_folder_meanwhile_is_corrected(node: Node) -> None:
    files = sorted(node.cdi.glob("*.json"))
    files[0].unlink()
    files[1].write_text("{")
    files[2].rename(files[2].with_name(f"{node.driver}-device_stranger.json"))
    node.start()
    assert node.cdi_holdings() == node.holdings() == {"a": ("gpu-0",), "b": ("gpu-1",), "c": ("gpu-2",)}


def test_an_upgrade_and_a_downgrade_of_the_schema_keep_every_claim(
    node: Node, cluster: LocalApiServer, claims: list[Claim]
) -> None:
    """Version 5 adds a field that version 4 keeps."""
    new = claim_for(cluster, node, "new", "gpu-3")
    agent = node.start(program=[NEWER])
    assert devices_of(prepare(node, claims[0])) == ["gpu-0"]
    assert prepare(node, new).devices
    agent.terminate()
    assert header(node, "new") == (5, 4)

    node.reboot("boot-2")  # so that the older agent has to write the file
    agent = node.start()
    assert agent.details()["state"] == "good"
    for claim in (claims[0], new):
        assert prepare(node, claim).devices
    agent.terminate()
    assert header(node, "new") == (5, 4)
    assert data(node, "new")["note"] == "of version 5", "carried along"

    agent = node.start(program=[NEWER])
    assert agent.details()["state"] == "good"
    for claim in (*claims, new):
        assert unprepare(node, claim) == ""
    assert node.holdings() == {}


def test_going_back_by_one_version_is_refused_clearly_and_loses_nothing(
    node: Node, cluster: LocalApiServer, claims: list[Claim]
) -> None:
    """An agent of version 3 knows no phases: it would report unprepared claims as prepared."""
    claim, other = claims[0], claim_for(cluster, node, "other", "gpu-3")
    before = node.file_of("a").read_bytes()

    agent = node.start(program=[OLDER])
    assert "newer program" in agent.details()["unknown_claims"]["a"]
    assert "newer program" in prepare(node, claim).error
    assert "newer program" in unprepare(node, claim)
    assert "UID a" in prepare(node, claim_for(cluster, node, "thief", "gpu-0")).error, "its device stays held"
    assert devices_of(prepare(node, other)) == ["gpu-3"]
    agent.terminate()
    assert node.file_of("a").read_bytes() == before

    agent = node.start()
    assert agent.details()["state"] == "good"
    assert devices_of(prepare(node, claim)) == ["gpu-0"]
    assert devices_of(prepare(node, other)) == ["gpu-3"], "written by the older one; set up again"
    for known in (*claims, other):
        assert unprepare(node, known) == ""
    assert (node.holdings(), node.cdi_holdings()) == ({}, {})


def header(node: Node, uid: str) -> tuple[int, int]:
    document = json.loads(node.file_of(uid).read_bytes())
    return document["version"], document["readable_by"]


def data(node: Node, uid: str) -> dict[str, object]:
    found: dict[str, object] = json.loads(node.file_of(uid).read_bytes())["data"]
    return found


def test_a_pod_that_shares_a_claim_later_is_known_by_name_also_after_a_restart(
    node: Node, cluster: LocalApiServer, claims: list[Claim]
) -> None:
    """Kubelet prepares a claim once, and does not call again for the next pod that uses it."""
    cluster.reserve(claims[0].name, ["pod-of-a", "late"])

    def pods() -> list[str]:
        return sorted(pod.name for pod in talk(node, lambda kubelet: kubelet.pod_resources()))

    agent = node.start()  # looks at once, and then every minute
    until(lambda: pods() == ["pod-late", "pod-pod-of-a", "pod-pod-of-b", "pod-pod-of-c"])
    agent.kill()
    cluster.go_down()
    node.start()
    assert pods() == ["late", "pod-of-a", "pod-of-b", "pod-of-c"], "only the UIDs are on disk"
