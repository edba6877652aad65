"""Drivers as authors write them, served as real processes."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest

from draState import PodConfigStore
from draState.plugin import Settings, SettingsError, serve
from draState.plugin.__main__ import main
from draState.plugin.rehearsal import Claim, HealthReport, Kubelet, LocalApiServer, Node

from ...dra_agent.conversation import LIMIT, talk, until
from .drivers import FOLDER, Gpu, Nic

GPU = ("-m", "tests.draState.plugin.drivers", "gpu")
NIC = ("-m", "tests.draState.plugin.drivers", "nic")
BOTH = ("-m", "tests.draState.plugin.drivers", "gpu", "nic")


class NicNode(Node):
    driver = "nic.example.com"

    def __enter__(self) -> NicNode:
        return self


@pytest.fixture
def cluster() -> Iterator[LocalApiServer]:
    with LocalApiServer() as cluster:
        yield cluster


@pytest.fixture
def hardware(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(FOLDER, str(tmp_path))
    return tmp_path


@pytest.fixture
def node(cluster: LocalApiServer, hardware: Path) -> Iterator[NicNode]:
    with NicNode(cluster.address) as node:
        yield node


def claim_for(cluster: LocalApiServer, uid: str, device: str, driver: str = "nic.example.com") -> Claim:
    claim = Claim(uid, f"claim-{uid}")
    cluster.allocate(uid, claim.name, [device], driver=driver, pool="node-1", pods=[f"pod-{uid}"])
    return claim


def env_of(node: Node, uid: str) -> dict[str, str]:
    (path,) = node.cdi.glob(f"*_{uid}.json")
    (device,) = json.loads(path.read_text())["devices"]
    return dict(line.split("=", 1) for line in device["containerEdits"]["env"])


def prepare(node: Node, claim: Claim) -> str:
    return talk(node, lambda kubelet: kubelet.prepare(claim))[claim.uid].error


def unprepare(node: Node, claim: Claim) -> str:
    return talk(node, lambda kubelet: kubelet.unprepare(claim))[claim.uid]


def test_coroutines_set_up_and_tear_down_with_what_was_chosen(
    cluster: LocalApiServer, node: NicNode, hardware: Path
) -> None:
    agent = node.start(program=NIC)
    claims = [claim_for(cluster, "u1", "eth1"), claim_for(cluster, "u2", "eth2")]
    assert [prepare(node, claim) for claim in claims] == ["", ""]
    assert [env_of(node, claim.uid)["VF"] for claim in claims] == ["0", "1"]
    assert env_of(node, "u1").items() >= {"DRA_DEVICE_ETH1": "eth1", "DRA_CLAIM_ETH1": "u1"}.items()
    until(lambda: bool(cluster.claim("claim-u1")["status"].get("devices")))
    check_status(cluster.claim("claim-u1"))
    agent.kill()

    agent = node.start(program=NIC)
    assert unprepare(node, claims[0]) == ""
    assert [(hardware / f"vf-{vf}").exists() for vf in (0, 1)] == [False, True]
    assert prepare(node, claim_for(cluster, "u3", "eth1")) == ""
    assert env_of(node, "u3")["VF"] == "0"
    assert agent.terminate() == 0
    with PodConfigStore(node.folder / "p" / "pods", boot_id=node.boot_id) as store:
        found = [store.get_device_config(f"pod-{uid}", uid, device) for uid, device in (("u3", "eth1"), ("u2", "eth2"))]
        assert [each.config for each in found if each] == [{"vf": 0}, {"vf": 1}]


def check_status(claim: dict[str, Any]) -> None:
    """What its `status.devices` shows."""
    (entry,) = claim["status"]["devices"]
    assert [(each["type"], each["status"], each["reason"]) for each in entry["conditions"]] == [
        ("Ready", "True", "SetUp"),
        ("LinkUp", "False", "NoCarrier"),
    ]
    assert (entry["device"], entry["data"]) == ("eth1", {"vf": 0})
    network = {"interfaceName": "net1", "ips": ["10.0.0.7/24"], "hardwareAddress": "02:00:00:00:00:01"}
    assert entry["networkData"] == network
    spec = {"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": "c"}}]}}
    for version in ("1.34", "1.35", "1.36", "1.37"):
        assert kubernetes_validate.validate({**claim, "spec": spec}, version, strict=True) == version


def test_an_error_of_a_hook_is_kubelets_answer_and_the_choice_stays(
    cluster: LocalApiServer, node: NicNode, hardware: Path
) -> None:
    agent = node.start(program=NIC)
    claim = claim_for(cluster, "u1", "eth1")
    (hardware / "broken").touch()
    assert "the firmware does not answer" in prepare(node, claim)
    agent.kill()
    (hardware / "broken").unlink()
    node.start(program=NIC)
    assert prepare(node, claim) == ""
    assert sorted(path.name for path in hardware.glob("vf-*")) == ["vf-0"]


def test_plain_devices_are_published_and_a_set_up_that_returns_others_fails_before_a_container_gets_them(
    cluster: LocalApiServer, node: NicNode, hardware: Path
) -> None:
    node.driver = "gpu.example.com"
    node.start(program=GPU)
    until(lambda: len(cluster.slices()) == 1)
    assert cluster.slices()[0]["spec"]["devices"][1] == {
        "name": "gpu-1",
        "attributes": {"model": {"string": "a"}, "index": {"int": 1}},
        "capacity": {"memory": {"value": "16Gi"}},
    }
    claim = claim_for(cluster, "u1", "gpu-0", "gpu.example.com")
    for times in ("0", "2"):
        (hardware / "times").write_text(times)
        assert prepare(node, claim) == "set_up must return one PreparedDevice for each device of the claim"
        assert node.cdi_holdings() == {}


def test_a_lost_record_is_rebuilt_with_what_was_chosen(cluster: LocalApiServer, node: NicNode, hardware: Path) -> None:
    agent = node.start(program=NIC)
    claims = [claim_for(cluster, uid, device) for uid, device in (("u1", "eth1"), ("u2", "eth2"))]
    assert [prepare(node, claim) for claim in claims] == ["", ""]
    agent.kill()
    shutil.rmtree(node.state)
    node.start(program=NIC)
    assert unprepare(node, claims[1]) == ""
    assert [(hardware / f"vf-{vf}").exists() for vf in (0, 1)] == [True, False]


def test_the_driver_judges_the_health_of_its_devices(cluster: LocalApiServer, node: NicNode, hardware: Path) -> None:
    async def say(kubelet: Kubelet) -> None:
        seen: list[tuple[int, str, int]] = []
        async for report in kubelet.watch_health():
            found: HealthReport = report["node-1", "eth1"]
            state = (found.health, found.message, found.timeout)
            if state not in seen:
                seen.append(state)
            if seen == [(1, "", 60)]:
                (hardware / "down").touch()
            elif seen[1:] == [(2, "no link", 60)]:
                (hardware / "unknown").touch()
            elif len(seen) == 3:
                assert seen[2] == (0, "the driver's health check failed: no answer", 30)
                assert report["node-1", "eth2"].health == 0
                return

    node.start(program=NIC)
    talk(node, say)


def test_several_drivers_share_a_process_and_nothing_else(
    cluster: LocalApiServer, node: NicNode, hardware: Path
) -> None:
    agent = node.start("--kubelet-dir", str(node.folder), program=BOTH)
    claims = {
        "gpu.example.com": claim_for(cluster, "u1", "gpu-0", "gpu.example.com"),
        "nic.example.com": claim_for(cluster, "u2", "eth1"),
    }
    for driver, claim in claims.items():
        node.driver = driver
        assert prepare(node, claim) == ""
    assert (hardware / "gpu-u1").exists()
    assert (hardware / "vf-0").exists()
    details = agent.details()["drivers"]
    assert {driver: each["claims"] for driver, each in details.items()} == dict.fromkeys(claims, 1)
    metrics = agent.get("/metrics")[1]
    assert metrics.count("# TYPE dra_resource_claims_in_use gauge") == 1
    for driver in claims:
        assert f'dra_agent_phase{{driver="{driver}",phase="serving"}} 1.0' in metrics
    assert agent.terminate() == 0
    assert list(Path(node.registry).iterdir()) == []
    assert all(list((node.folder / "plugins" / driver / "claims").glob("u*.json")) for driver in claims)


@pytest.mark.parametrize("settings", [{"plugin_dir": "/p"}, {"state_dir": "/s"}])
def test_several_drivers_cannot_have_one_folder(settings: dict[str, Any]) -> None:
    with pytest.raises(SettingsError, match="each of several drivers"):
        serve([Gpu(), Nic()], Settings(node="n", **settings))


def test_a_driver_is_served_by_its_name_alone(node: NicNode) -> None:
    (node.folder / "nic.py").write_text("from tests.draState.plugin.drivers import Nic\n")
    options = ["--node", "n1", "--kubelet-dir", str(node.folder), "--cdi-dir", str(node.cdi), "--http", "127.0.0.1:0"]
    options += ["--kubeconfig", str(node.folder / "kubeconfig")]
    paths = os.pathsep.join([str(node.folder), *filter(None, sys.path)])
    command = [sys.executable, "-m", "draState.plugin", "nic:Nic", *options]
    with subprocess.Popen(command, env={**os.environ, "PYTHONPATH": paths}) as process:
        until((node.folder / "plugins_registry" / "nic.example.com-reg.sock").exists)
        process.terminate()
        assert process.wait(LIMIT) == 0


@pytest.mark.parametrize(
    ("name", "said"),
    [("nowhere:Nic", "No module named 'nowhere'"), ("json:loads", "not a subclass"), ("json", "not a subclass")],
)
def test_what_is_no_driver_is_refused_by_name(name: str, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([name, "--node", "n"]) == 2
    assert f"{name}: {said}" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("settings", "said"),
    [({"node": ""}, "NODE_NAME"), ({"node": "n", "http": "8080x"}, "--http"), ({"node": "N"}, "--node")],
)
def test_settings_that_cannot_work_are_refused(
    settings: dict[str, Any], said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("NODE_NAME", raising=False)
    with pytest.raises(SettingsError, match=said):
        Settings(**settings)
