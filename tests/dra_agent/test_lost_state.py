"""The state of running pods is damaged or gone: their devices stay held, and their containers can restart."""

from __future__ import annotations

import json
import shutil

import pytest

from dra_agent.rehearsal import Node
from draState.plugin import HeldClaims
from draState.plugin.rehearsal import AgentProcess, Claim, LocalApiServer

from .conversation import claim_for, devices_of, prepare, unprepare, until


def lose_state(node: Node) -> None:
    shutil.rmtree(node.state)


def damage_both_generations(node: Node, uid: str) -> None:
    node.file_of(uid).write_bytes(b"")
    (node.state / f".previous-{uid}").write_bytes(b"")


def files(node: Node) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in node.cdi.iterdir()}


def wait_for_lost(agent: AgentProcess) -> None:
    until(lambda: "the state was lost" in agent.details().get("reason", ""))


def test_a_lost_state_directory_is_rebuilt_and_running_pods_notice_nothing(
    node: Node, cluster: LocalApiServer, claims: list[Claim]
) -> None:
    before, held = files(node), node.holdings()
    lose_state(node)

    agent = node.start()

    assert files(node) == before, "containers that restart need them"
    assert node.holdings() == held
    assert agent.log.count("record-lost") == 3
    assert agent.log.count("healed") == 3
    assert "is held by" in prepare(node, claim_for(cluster, node, "thief", "gpu-0")).error
    assert unprepare(node, claims[0]) == ""
    assert devices_of(prepare(node, claims[1])) == ["gpu-1"]
    assert node.cdi_holdings() == node.holdings() == {"b": ("gpu-1",), "c": ("gpu-2",)}


def test_while_the_api_server_does_not_answer_it_is_not_ready_and_holds_what_the_files_name(
    node: Node, cluster: LocalApiServer, claims: list[Claim]
) -> None:
    before = files(node)
    lose_state(node)
    cluster.go_down()

    agent = node.start(wait=False)

    wait_for_lost(agent)
    assert agent.get("/readyz")[0] == 503
    assert files(node) == before
    assert unprepare(node, claims[0]) == "", "kubelet's own calls are answered"
    cluster.listen()
    agent.wait_until_ready()
    assert node.holdings() == node.cdi_holdings() == {"b": ("gpu-1",), "c": ("gpu-2",)}


def test_what_the_api_server_does_not_confirm_stays_held_until_it_is_released(
    node: Node, cluster: LocalApiServer, claims: list[Claim]
) -> None:
    cluster.reallocate(claims[0].name, ["gpu-5"])
    lose_state(node)

    agent = node.start(wait=False)

    wait_for_lost(agent)
    until(lambda: set(node.holdings()) == {"b", "c"})
    until(lambda: "other devices" in agent.details()["unknown_claims"]["a"])
    assert set(node.cdi_holdings()) == {"a", "b", "c"}
    assert "is held by" in prepare(node, claim_for(cluster, node, "thief", "gpu-0")).error


@pytest.mark.parametrize("cdi", [True, False])
def test_with_both_generations_damaged_no_other_claim_gets_the_device(
    node: Node, cluster: LocalApiServer, claims: list[Claim], cdi: bool
) -> None:
    damage_both_generations(node, "a")
    if not cdi:
        next(node.cdi.glob("*_a.json")).unlink()

    agent = node.start()

    assert "is held by" in prepare(node, claim_for(cluster, node, "thief", "gpu-0")).error
    until(lambda: agent.details()["state"] == ("good" if cdi else "degraded"))
    assert bool(list(node.state.rglob("*quarantine*"))) is cdi, "the damaged bytes are kept"
    if not cdi:
        until(lambda: "nothing shows" in agent.details()["unknown_claims"]["a"])
        assert devices_of(prepare(node, claims[0])) == ["gpu-0"]


def test_if_only_the_damaged_bytes_name_the_device_it_is_held_and_shown(
    node: Node, cluster: LocalApiServer, claims: list[Claim]
) -> None:
    file = node.file_of("a")
    file.write_bytes(file.read_bytes().replace(b'"written":"20', b'"written":"99'))
    (node.state / ".previous-a").unlink()
    next(node.cdi.glob("*_a.json")).unlink()
    cluster.forget_claim(claims[0].name)

    node.start()

    assert "is held by" in prepare(node, claim_for(cluster, node, "thief", "gpu-0")).error
    with HeldClaims(str(node.folder / "p" / "dra.sock")) as held:
        assert [(each.uid, each.devices) for each in held.list() if each.unknown] == [("a", ("gpu-0",))]


def test_if_nothing_is_known_that_is_shown(node: Node, cluster: LocalApiServer, claims: list[Claim]) -> None:
    damage_both_generations(node, "a")
    next(node.cdi.glob("*_a.json")).unlink()
    cluster.go_down()
    agent = node.start()
    assert "claim a: unknown-devices" in agent.log
    assert 'dra_resource_claims_unknown_devices{claim_uid="a"} 1.0' in agent.get("/metrics")[1]
    cluster.forget_claim(claims[0].name)
    cluster.listen()
    until(lambda: "a" in agent.details()["orphaned_claims"])
    assert json.loads(agent.get("/readyz")[1])["ready"]


def test_an_agent_without_a_state_directory_rebuilds_from_what_the_node_shows(
    node: Node, cluster: LocalApiServer
) -> None:
    claim = claim_for(cluster, node, "a", "gpu-0")
    agent = node.start("--state-dir", "")
    assert "record-lost" not in agent.log, "a new node is told from one that has lost its state"
    assert devices_of(prepare(node, claim)) == ["gpu-0"]
    assert "is held by" in prepare(node, claim_for(cluster, node, "thief", "gpu-0")).error
    agent.kill()

    agent = node.start("--state-dir", "")

    assert agent.details()["claims"] == 1
    assert "is held by" in prepare(node, Claim("thief", "claim-thief")).error
    assert unprepare(node, claim) == ""
    assert devices_of(prepare(node, Claim("thief", "claim-thief"))) == ["gpu-0"]
    assert not node.state.exists()
    assert not (node.folder / "p" / "pods").exists()
