"""What went wrong on a real cluster, with real processes: a wrong device, a device twice, no device, and orphans."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from typing import Any

import pytest

from dra_agent.rehearsal import Node
from draState.plugin.rehearsal import Claim, LocalApiServer, injected

from .cdirules import broken_rules
from .conversation import claim_for, devices_of, prepare, unprepare, until


def command(node: Node, *arguments: str) -> subprocess.CompletedProcess[str]:
    """A command for a running agent, as an operator gives it."""
    paths = {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    full = [sys.executable, "-m", "dra_agent", *arguments, "--socket", str(node.folder / "p" / "dra.sock")]
    return subprocess.run(
        full, env={**os.environ, **paths}, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )


def environment(node: Node, uid: str) -> dict[str, str]:
    """What a container that gets all devices of a claim sees: later lines replace earlier ones."""
    (file,) = node.cdi.glob(f"*_{uid}.json")
    spec = json.loads(file.read_text())
    assert broken_rules(spec) == []
    return dict(line.split("=", 1) for device in spec["devices"] for line in device["containerEdits"]["env"])


def test_a_prioritized_list_gets_a_device(node: Node, cluster: LocalApiServer) -> None:
    cluster.allocate("a", "claim-a", ["gpu-0"], driver=node.driver, pool=node.pool, request="gpu/small")
    node.start()
    prepared = prepare(node, Claim("a", "claim-a"))
    assert injected(prepared, "gpu") == [f"{node.driver}/device=a-gpu-0"]


def test_both_devices_of_a_claim_are_seen_by_the_container(node: Node, cluster: LocalApiServer) -> None:
    node.start()
    assert devices_of(prepare(node, claim_for(cluster, node, "a", "gpu-0", "gpu-1"))) == ["gpu-0", "gpu-1"]
    found = environment(node, "a")
    assert (found["DRA_DEVICE_GPU_0"], found["DRA_DEVICE_GPU_1"]) == ("gpu-0", "gpu-1")
    assert found["DRA_CLAIM_GPU_0"] == found["DRA_CLAIM_GPU_1"] == "a"


def test_a_device_of_a_renamed_pool_does_not_go_to_a_second_claim(node: Node, cluster: LocalApiServer) -> None:
    old = claim_for(cluster, node, "a", "gpu-0")
    agent = node.start()
    first = prepare(node, old)
    agent.terminate()
    devices = json.loads((node.folder / "devices.json").read_text())
    node.write("devices.json", {**devices, "pool": "renamed"})
    node.start()
    cluster.allocate("b", "claim-b", ["gpu-0"], driver=node.driver, pool="renamed")
    new = Claim("b", "claim-b")

    assert "is held by claim default/claim-a (UID a)" in prepare(node, new).error
    assert prepare(node, old) == first, "running claims keep the old name"
    assert unprepare(node, old) == ""
    assert devices_of(prepare(node, new)) == ["gpu-0"]


def test_a_device_that_left_the_device_file_stays_with_its_claim(node: Node, cluster: LocalApiServer) -> None:
    claim = claim_for(cluster, node, "a", "gpu-0")
    agent = node.start()
    first = prepare(node, claim)
    devices = json.loads((node.folder / "devices.json").read_text())
    node.write("devices.json", {**devices, "devices": [{"name": "gpu-1"}, {"name": "new-0"}]})
    until(lambda: "2 devices are offered now" in agent.log)

    assert devices_of(prepare(node, claim_for(cluster, node, "b", "new-0"))) == ["new-0"]
    assert prepare(node, claim) == first
    agent.kill()
    node.start()
    assert prepare(node, claim) == first
    assert environment(node, "a")["DRA_DEVICE_GPU_0"] == "gpu-0"
    assert "which this node does not have" in prepare(node, claim_for(cluster, node, "c", "gpu-2")).error


def test_a_cdi_file_that_was_deleted_is_back_after_the_next_prepare(node: Node, cluster: LocalApiServer) -> None:
    claim = claim_for(cluster, node, "a", "gpu-0")
    node.start()
    prepare(node, claim)
    for file in node.cdi.iterdir():
        file.unlink()
    assert devices_of(prepare(node, claim)) == ["gpu-0"]
    assert node.cdi_holdings() == {"a": ("gpu-0",)}


def test_a_folder_in_place_of_a_cdi_file_fails_no_start(node: Node, cluster: LocalApiServer) -> None:
    claim, other = claim_for(cluster, node, "a", "gpu-0"), claim_for(cluster, node, "b", "gpu-1")
    agent = node.start()
    for each in (claim, other):
        prepare(node, each)
    agent.kill()
    (file,) = node.cdi.glob("*_a.json")
    file.unlink()
    file.mkdir()
    (node.cdi / f"{node.driver}-device_stray.json").mkdir()

    node.start()

    assert devices_of(prepare(node, other)) == ["gpu-1"]
    assert str(file) in prepare(node, claim).error
    file.rmdir()
    assert devices_of(prepare(node, claim)) == ["gpu-0"]


def test_an_orphan_is_named_and_can_be_released(node: Node, cluster: LocalApiServer) -> None:
    """Kubelet lost its dra_manager_state: it will never unprepare what ran before."""
    orphan, running = claim_for(cluster, node, "a", "gpu-0"), claim_for(cluster, node, "b", "gpu-1")
    agent = node.start()
    for claim in (orphan, running):
        prepare(node, claim)
    agent.terminate()
    cluster.forget_claim(orphan.name)
    agent = node.start()
    until(lambda: "a" in agent.details()["orphaned_claims"])
    assert 'dra_resource_claims_orphaned{claim_uid="a"} 1.0' in agent.get("/metrics")[1]
    assert "claim a: orphaned" in agent.log
    assert "is held by claim" in prepare(node, claim_for(cluster, node, "new", "gpu-0")).error

    listed = json.loads(command(node, "claims", "--json").stdout)
    assert [(row["uid"], row["devices"], bool(row["orphan"])) for row in listed] == [
        ("a", ["gpu-0"], True),
        ("b", ["gpu-1"], False),
    ]
    assert "ORPHAN" in command(node, "claims").stdout
    for arguments, complaint in [
        (["release", "a"], "give --yes"),
        (["release", "--yes", "b"], "it is not an orphan"),
        (["release", "--yes", "never-seen"], "is not known here"),
    ]:
        refused = command(node, *arguments)
        assert (refused.returncode, complaint in refused.stderr) == (1, True), refused
    assert node.holdings() == {"a": ("gpu-0",), "b": ("gpu-1",)}

    released = command(node, "release", "--yes", "a")
    assert (released.returncode, released.stderr) == (0, ""), released
    assert "its devices are free" in released.stdout
    assert node.holdings() == node.cdi_holdings() == {"b": ("gpu-1",)}
    assert devices_of(prepare(node, Claim("new", "claim-new"))) == ["gpu-0"]
    assert agent.details()["orphaned_claims"] == {}


def test_orphans_are_released_automatically_if_the_operator_wants_it(node: Node, cluster: LocalApiServer) -> None:
    gone, deallocated, running = (claim_for(cluster, node, uid, f"gpu-{n}") for n, uid in enumerate("abc"))
    agent = node.start()
    for claim in (gone, deallocated, running):
        prepare(node, claim)
    agent.terminate()
    cluster.forget_claim(gone.name)
    cluster.deallocate(deallocated.name)
    node.start("--release-orphans-after", "0.5")
    until(lambda: node.holdings() == {"c": ("gpu-2",)})
    assert node.cdi_holdings() == {"c": ("gpu-2",)}


def test_a_server_that_lost_the_api_makes_no_orphans(node: Node, cluster: LocalApiServer) -> None:
    """It answers 404 for every claim, but that does not say that they are gone."""
    claim = claim_for(cluster, node, "a", "gpu-0")
    agent = node.start("--release-orphans-after", "0")
    prepare(node, claim)
    cluster.versions = ["v1beta1"]
    assert "404" in prepare(node, claim).error
    listed = command(node, "claims", "--json")  # looks for orphans first
    assert [row["orphan"] for row in json.loads(listed.stdout)] == [""]
    assert agent.details()["orphaned_claims"] == {}
    assert node.holdings() == {"a": ("gpu-0",)}


def test_a_command_without_an_agent_says_so(node: Node) -> None:
    done = command(node, "claims")
    assert done.returncode == 1
    assert "the agent does not answer" in done.stderr


@pytest.mark.parametrize("restarted", [False, True])
def test_a_prepare_that_comes_after_the_unprepare_sets_nothing_up(
    node: Node, cluster: LocalApiServer, restarted: bool
) -> None:
    """Kubelet's first call was slow on its way. A next pod of the same claim is served, seconds later."""
    claim = claim_for(cluster, node, "a", "gpu-0")
    agent = node.start()
    prepare(node, claim)
    assert unprepare(node, claim) == ""
    cluster.reserve(claim.name, [])
    if restarted:
        agent.kill()
        node.start()

    assert "reserved for nobody" in prepare(node, claim).error

    assert node.holdings() == node.cdi_holdings() == {}
    cluster.reserve(claim.name, ["next"])
    assert devices_of(prepare(node, claim)) == ["gpu-0"]


def test_an_orphan_whose_container_still_runs_is_not_given_away(node: Node, cluster: LocalApiServer) -> None:
    """The pod was force-deleted while kubelet was down, and its containers run on."""
    claim = claim_for(cluster, node, "a", "gpu-0")
    agent = node.start("--release-orphans-after", "0")
    prepare(node, claim)
    cluster.reallocate(claim.name, ["gpu-1"])
    with node.container("a") as process:
        user = f"still used by pid {process.pid} (sleep)"
        refused = command(node, "release", "--yes", "a")
        assert (refused.returncode, user in refused.stderr) == (1, True), refused
        assert f"has other devices now; {user}" in command(node, "claims").stdout
        until(lambda: f"release: claim default/claim-a (UID a) is {user}" in agent.log)  # by itself
        assert "is held by" in prepare(node, claim_for(cluster, node, "b", "gpu-0")).error
    until(lambda: not prepare(node, Claim("b", "claim-b")).error)
    assert node.holdings() == {"b": ("gpu-0",)}


def test_without_the_host_s_processes_an_orphan_is_released_by_force_only(node: Node, cluster: LocalApiServer) -> None:
    claim = claim_for(cluster, node, "a", "gpu-0")
    shutil.rmtree(node.proc / "2")  # as in a container of its own
    node.start()
    prepare(node, claim)
    cluster.forget_claim(claim.name)
    refused = command(node, "release", "--yes", "a")
    assert (refused.returncode, "does not show the host's processes (set hostPID)" in refused.stderr) == (1, True)
    assert node.holdings() == {"a": ("gpu-0",)}
    assert command(node, "release", "--yes", "--force", "a").returncode == 0
    assert node.holdings() == {}


def test_a_shared_device_goes_to_several_claims_with_a_share_each(cluster: LocalApiServer) -> None:
    decided: dict[str, Any] = {"tolerations": [{"key": "ill", "operator": "Exists"}], "bindingConditions": ["Attached"]}
    with Node(cluster.address, [{"name": "shared", "shared": True}, {"name": "gpu-0"}]) as node:
        node.start()

        def ask(uid: str, device: str, share: str, **more: Any) -> str:
            claim = Claim(uid, f"claim-{uid}")
            cluster.allocate(
                uid, claim.name, [device], driver=node.driver, pool=node.pool, **{"shareID": share, **more}
            )
            return prepare(node, claim).error

        assert ask("a", "shared", "s1", **decided) == ask("b", "shared", "s2") == ""
        assert "held by claim default/claim-a" in ask("c", "shared", "s1")
        assert "is not for sharing" in ask("d", "gpu-0", "s1")
        assert "which this node does not have" in ask("e", "gpu-9", "s1")
        found = environment(node, "a")
        assert json.loads(found["DRA_ALLOCATION_SHARED_S1"]) == decided, "what the scheduler decided"
        assert "DRA_ALLOCATION_SHARED_S2" not in environment(node, "b")


def test_a_uid_that_is_no_name_is_refused_in_both_directions(node: Node) -> None:
    node.start()
    for uid in ("", "../../etc/passwd", "a/b", ".hidden", "x" * 300):
        claim = Claim(uid, "c")
        assert "UID of the claim is invalid" in prepare(node, claim).error
        assert "UID of the claim is invalid" in unprepare(node, claim)


def test_a_new_claim_with_the_name_of_an_old_one_is_another_claim(node: Node, cluster: LocalApiServer) -> None:
    old = claim_for(cluster, node, "a", "gpu-0")
    node.start()
    prepare(node, old)
    cluster.allocate("b", old.name, ["gpu-1"], driver=node.driver, pool=node.pool)
    assert devices_of(prepare(node, Claim("b", old.name))) == ["gpu-1"]
    assert unprepare(node, old) == ""
    assert node.cdi_holdings() == node.holdings() == {"b": ("gpu-1",)}


def test_an_agent_whose_state_directory_was_taken_away_asks_for_a_restart(node: Node, cluster: LocalApiServer) -> None:
    agent = node.start()
    (node.state / ".lock").unlink()
    assert "lock file" in prepare(node, claim_for(cluster, node, "a", "gpu-0")).error
    until(lambda: agent.get("/healthz")[0] == 503)
    assert agent.get("/readyz")[0] == 503
    assert node.cdi_holdings() == {}
