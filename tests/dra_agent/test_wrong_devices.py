"""What went wrong on a real cluster, with real processes: a wrong device, a device twice, no device, and orphans."""

from __future__ import annotations

import json
import shutil

import pytest

from dra_agent.cli import main
from dra_agent.rehearsal import Node
from draState.plugin import HeldClaims
from draState.plugin.rehearsal import Claim, LocalApiServer

from .conversation import claim_for, devices_of, prepare, unprepare, until


def socket(node: Node) -> list[str]:
    return ["--socket", str(node.folder / "p" / "dra.sock")]


def test_a_device_of_a_renamed_pool_does_not_go_to_a_second_claim_and_one_that_left_the_file_stays(
    node: Node, cluster: LocalApiServer, claims: list[Claim]
) -> None:
    node.write("devices.json", {"driver": node.driver, "pool": "renamed", "devices": [{"name": "gpu-0"}]})
    node.start()
    cluster.allocate("b2", "claim-b2", ["gpu-0"], driver=node.driver, pool="renamed")
    new = Claim("b2", "claim-b2")

    assert "is held by claim default/claim-a (UID a)" in prepare(node, new).error
    for claim, device in zip(claims, ("gpu-0", "gpu-1", "gpu-2"), strict=True):
        (given,) = prepare(node, claim).devices
        assert (given.pool_name, given.device_name) == (node.pool, device), "running claims keep what they have"
    assert unprepare(node, claims[0]) == ""
    assert devices_of(prepare(node, new)) == ["gpu-0"]
    assert "which this node does not have" in prepare(node, claim_for(cluster, node, "c2", "gpu-3")).error


def test_a_folder_in_place_of_a_cdi_file_fails_no_start(node: Node, claims: list[Claim]) -> None:
    claim, other, _ = claims
    (file,) = node.cdi.glob("*_a.json")
    file.unlink()
    file.mkdir()
    (node.cdi / f"{node.driver}-device_stray.json").mkdir()

    node.start()

    assert devices_of(prepare(node, other)) == ["gpu-1"]
    assert str(file) in prepare(node, claim).error
    file.rmdir()
    assert devices_of(prepare(node, claim)) == ["gpu-0"]


def test_an_orphan_is_named_and_can_be_released(
    node: Node, cluster: LocalApiServer, claims: list[Claim], capsys: pytest.CaptureFixture[str]
) -> None:
    """Kubelet lost its dra_manager_state: it will never unprepare what ran before."""

    def command(*arguments: str) -> tuple[int, str, str]:
        code = main([*arguments, *socket(node)])
        return code, *capsys.readouterr()

    code, _, complaint = command("claims")
    assert (code, "the agent does not answer" in complaint) == (1, True)
    cluster.forget_claim(claims[0].name)
    agent = node.start()
    until(lambda: "a" in agent.details()["orphaned_claims"])
    assert 'dra_resource_claims_orphaned{claim_uid="a"} 1.0' in agent.get("/metrics")[1]
    assert "claim a: orphaned" in agent.log
    assert "is held by claim" in prepare(node, claim_for(cluster, node, "new", "gpu-0")).error

    listed = json.loads(command("claims", "--json")[1])
    assert [(row["uid"], row["devices"], bool(row["orphan"])) for row in listed] == [
        ("a", ["gpu-0"], True),
        ("b", ["gpu-1"], False),
        ("c", ["gpu-2"], False),
    ]
    assert "ORPHAN" in command("claims")[1]
    for arguments, expected in [
        (["release", "a"], "give --yes"),
        (["release", "--yes", "b"], "it is not an orphan"),
        (["release", "--yes", "never-seen"], "is not known here"),
    ]:
        code, _, complaint = command(*arguments)
        assert (code, expected in complaint) == (1, True), complaint
    assert set(node.holdings()) == {"a", "b", "c"}

    code, said, complaint = command("release", "--yes", "a")
    assert (code, complaint, "its devices are free" in said) == (0, "", True)
    assert node.holdings() == node.cdi_holdings() == {"b": ("gpu-1",), "c": ("gpu-2",)}
    assert devices_of(prepare(node, Claim("new", "claim-new"))) == ["gpu-0"]
    assert agent.details()["orphaned_claims"] == {}


def test_orphans_are_released_automatically_if_the_operator_wants_it(
    node: Node, cluster: LocalApiServer, claims: list[Claim]
) -> None:
    cluster.forget_claim(claims[0].name)
    cluster.deallocate(claims[1].name)
    node.start("--release-orphans-after", "0.5")
    until(lambda: node.holdings() == {"c": ("gpu-2",)})
    assert node.cdi_holdings() == {"c": ("gpu-2",)}


def test_a_server_that_lost_the_api_makes_no_orphans(node: Node, cluster: LocalApiServer, claims: list[Claim]) -> None:
    """It answers 404 for every claim, but that does not say that they are gone."""
    cluster.versions = ["v1beta1"]
    agent = node.start("--release-orphans-after", "0", wait=False)
    assert "404" in prepare(node, claims[0]).error
    with HeldClaims(socket(node)[1]) as held:
        assert [claim.orphan for claim in held.list()] == ["", "", ""], "which looks for orphans first"
    assert agent.details()["orphaned_claims"] == {}
    assert set(node.holdings()) == {"a", "b", "c"}


def test_a_prepare_that_comes_after_the_unprepare_sets_nothing_up_even_after_a_restart(
    node: Node, cluster: LocalApiServer, claims: list[Claim]
) -> None:
    """Kubelet's first call was slow on its way. A next pod of the same claim is served, seconds later."""
    agent = node.start()
    assert unprepare(node, claims[0]) == ""
    cluster.reserve(claims[0].name, [])
    agent.kill()
    node.start()

    assert "reserved for nobody" in prepare(node, claims[0]).error

    assert "a" not in {**node.holdings(), **node.cdi_holdings()}
    cluster.reserve(claims[0].name, ["next"])
    assert devices_of(prepare(node, claims[0])) == ["gpu-0"]


def test_an_orphan_whose_container_still_runs_is_not_given_away(
    node: Node, cluster: LocalApiServer, claims: list[Claim]
) -> None:
    """The pod was force-deleted while kubelet was down, and its containers run on."""
    cluster.reallocate(claims[0].name, ["gpu-5"])
    with node.container("a") as process:
        agent = node.start("--release-orphans-after", "0")
        user = f"still used by pid {process.pid} (sleep)"
        with HeldClaims(socket(node)[1]) as held:
            assert user in held.release("a")
            (orphan,) = [claim.orphan for claim in held.list() if claim.orphan]
        assert f"has other devices now; {user}" in orphan
        until(lambda: f"release: claim default/claim-a (UID a) is {user}" in agent.log)  # by itself
        assert "is held by" in prepare(node, claim_for(cluster, node, "thief", "gpu-0")).error
    until(lambda: not prepare(node, Claim("thief", "claim-thief")).error)
    assert "a" not in node.holdings()


def test_without_the_host_s_processes_an_orphan_is_released_by_force_only(
    node: Node, cluster: LocalApiServer, claims: list[Claim], capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.rmtree(node.proc / "2")  # as in a container of its own
    cluster.forget_claim(claims[0].name)
    node.start()
    assert main(["release", "--yes", "a", *socket(node)]) == 1
    assert "does not show the host's processes (set hostPID)" in capsys.readouterr().err
    assert "a" in node.holdings()
    assert main(["release", "--yes", "--force", "a", *socket(node)]) == 0
    assert "a" not in node.holdings()


def test_an_agent_whose_state_directory_was_taken_away_asks_for_a_restart(node: Node, cluster: LocalApiServer) -> None:
    agent = node.start()
    (node.state / ".lock").unlink()
    assert "lock file" in prepare(node, claim_for(cluster, node, "a", "gpu-0")).error
    until(lambda: agent.get("/healthz")[0] == 503)
    assert agent.get("/readyz")[0] == 503
    assert node.cdi_holdings() == {}
