"""Opaque configs, on their way from a claim or its class to the container, and what is stored per pod."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from dra_agent.driver import FileDriver
from dra_agent.rehearsal import Node
from draState import ClaimInvalid, Device, DeviceConfig, DriverClaim, OpaqueConfig, PodConfigStore
from draState.plugin.rehearsal import AgentProcess, Claim, Kubelet, LocalApiServer

from .cdirules import broken_rules
from .conversation import prepare, talk, unprepare

SECRET = "hunter2"
FIRST, SECOND = {"env": {"A": "1"}}, {"env": {"B": "2"}}
KILLED = ("-m", "tests.dra_agent.killed_agent")


@pytest.fixture
def driver(tmp_path: Path) -> FileDriver:
    (tmp_path / "devices.json").write_text('{"driver": "a.b", "devices": []}')
    return FileDriver(str(tmp_path / "devices.json"), "n1")


def claim_with(*parameters: Any, from_class: bool = False) -> DriverClaim:
    configs = tuple(OpaqueConfig(each, (), from_class) for each in parameters)
    return DriverClaim("u", "c", "ns", (Device("n1", "gpu-0"),), configs)


@pytest.mark.parametrize(
    "parameters",
    [
        {},
        {"env": {}},
        {"env": None},
        {"env": {"A": "b", "lower": "", "WITH SPACE": "c"}},
        {"annotations": {"a": "", "example.com/a.b_c-d": "text\nof two lines"}},
        {"env": {"A": "b"}, "annotations": {"A": "b"}},
    ],
)
def test_what_a_config_may_say(driver: FileDriver, parameters: Any) -> None:
    driver.check(claim_with(parameters))
    (prepared,) = driver.set_up(claim_with(parameters))
    assert prepared.env == (parameters.get("env") or {})


@pytest.mark.parametrize(
    ("parameters", "why"),
    [
        ({"mounts": {}}, "there is no 'mounts' in parameters, only env and annotations"),
        ({"env": {}, "x" * 100: 1}, f"there is no '{'x' * 63}' in parameters"),
        (None, "the parameters must be an object with env and annotations"),
        ([], "the parameters must be an object"),
        ({"env": [SECRET]}, "env must be an object whose values are strings"),
        ({"env": {SECRET: 1}}, "env must be an object whose values are strings"),
        ({"annotations": {SECRET: {}}}, "annotations must be an object whose values are strings"),
        ({"env": {"": SECRET}}, "env: a variable's name is not empty"),
        ({"env": {f"{SECRET}=": SECRET}}, "env: a variable's name is not empty and has no '='"),
        ({"env": {"A": f"{SECRET}\0"}}, "env: .* no NUL"),
        *(
            ({"env": {name: SECRET}}, "env: names that begin with DRA_DEVICE_ or DRA_CLAIM_ or DRA_ALLOCATION_")
            for name in ("DRA_DEVICE_GPU_0", "DRA_CLAIM_X")
        ),
        *(
            ({"annotations": {name: ""}}, "annotations: a name is one of Kubernetes' annotations")
            for name in (f"{SECRET}!", "", "a" * 64, "-.com/a", "a/b/c")
        ),
    ],
)
def test_anything_else_is_refused_by_name_without_showing_its_values(
    driver: FileDriver, parameters: Any, why: str
) -> None:
    for from_class, source in ((True, "class"), (False, "claim")):
        with pytest.raises(ClaimInvalid, match=why) as error:
            driver.check(claim_with({}, parameters, from_class=from_class))
        assert str(error.value).startswith(f"claim ns/c (UID u): the config from its {source}: ")
        assert SECRET not in str(error.value)


def test_later_configs_win_name_by_name(driver: FileDriver) -> None:
    claim = claim_with(
        {"env": {"A": "class", "B": "class"}, "annotations": {"a": "class"}}, {"env": {"B": "claim", "C": "claim"}}
    )
    (prepared,) = driver.set_up(claim)
    assert (prepared.env, prepared.annotations) == ({"A": "class", "B": "claim", "C": "claim"}, {"a": "class"})


def test_configs_for_one_request_do_not_reach_another(driver: FileDriver) -> None:
    claim = DriverClaim(
        "u",
        "c",
        "ns",
        (Device("n1", "gpu-0", request_names=("one",)), Device("n1", "gpu-1", request_names=("two",))),
        (OpaqueConfig(FIRST, ("one",)), OpaqueConfig(SECOND, ("two",))),
    )
    assert [(each.device.device_name, each.env, each.config["env"]) for each in driver.set_up(claim)] == [
        ("gpu-0", {"A": "1"}, {"A": "1"}),
        ("gpu-1", {"B": "2"}, {"B": "2"}),
    ]


def allocate(cluster: LocalApiServer, node: Node, uid: str = "u1", **more: Any) -> Claim:
    claim = Claim(uid, f"claim-{uid}")
    more = {"pods": ("p1",), "devices": ["gpu-0"], **more}
    cluster.allocate(uid, claim.name, driver=node.driver, pool=node.pool, **more)
    return claim


def kept(node: Node) -> dict[str, dict[str, Any]]:
    """The config by pod UID and device, from disk."""
    with PodConfigStore(node.folder / "p" / "pods", boot_id=node.boot_id) as store:
        pods = {uid: store.get_pod_config(uid) for uid in store}
        return {uid: {name: each.config for name, each in pod.devices.items()} for uid, pod in pods.items() if pod}


def counted(agent: AgentProcess) -> int:
    found: int = agent.details()["pod_configs"]["pods"]
    return found


def test_configs_reach_the_container_and_are_kept_per_pod(cluster: LocalApiServer) -> None:
    with Node(cluster.address, [{"name": "gpu-0", "env": {"LEVEL": "device", "OWN": "device"}}]) as node:
        agent = node.start("--log-level", "debug")
        claim = allocate(
            cluster,
            node,
            pods=("p1", "p2"),
            from_class={"env": {"LEVEL": "class", "MODE": "class", "TOKEN": SECRET}, "annotations": {"a": "class"}},
            from_claim={"env": {"LEVEL": "claim"}, "annotations": {"example.com/b": SECRET}},
        )
        assert not prepare(node, claim).error
        (path,) = node.cdi.iterdir()
        spec = json.loads(path.read_text())
        assert broken_rules(spec) == []
        (device,) = spec["devices"]
        env = dict(line.split("=", 1) for line in device["containerEdits"]["env"])
        assert env.items() >= {"LEVEL": "claim", "MODE": "class", "OWN": "device", "TOKEN": SECRET}.items()
        assert device["annotations"] == {"a": "class", "example.com/b": SECRET}
        assert counted(agent) == 2

        assert SECRET not in agent.log
        assert SECRET not in agent.get("/metrics")[1] + agent.get("/readyz")[1]
        agent.terminate()
        config = {
            "env": {"LEVEL": "claim", "MODE": "class", "TOKEN": SECRET},
            "annotations": {"a": "class", "example.com/b": SECRET},
        }
        assert kept(node) == {pod: {"u1/gpu-0": config} for pod in ("p1", "p2")}

        agent = node.start()
        assert counted(agent) == 2
        assert unprepare(node, claim) == ""
        assert counted(agent) == 0
        agent.terminate()
        assert kept(node) == {}


def test_what_is_kept_follows_the_claims_and_nothing_that_was_refused_stays(
    cluster: LocalApiServer, node: Node
) -> None:
    agent = node.start()
    refused = allocate(cluster, node, from_claim={"env": {"A": SECRET}, "priority": SECRET})
    error = prepare(node, refused).error
    assert "the config from its claim: there is no 'priority' in parameters, only env and annotations" in error
    assert (node.claims(), node.cdi_holdings(), counted(agent)) == ({}, {}, 0)
    assert SECRET not in error + agent.log
    assert not prepare(node, allocate(cluster, node, "u2", devices=["gpu-1"])).error
    assert counted(agent) == 0, "a claim without configs needs none"
    for pods in (("p1",), ("p1", "p2"), ("p2",)):
        assert not prepare(node, allocate(cluster, node, pods=pods, from_claim=FIRST)).error
        assert counted(agent) == len(pods)
    assert not prepare(node, allocate(cluster, node, pods=("p2",), from_claim=SECOND)).error
    claims = [allocate(cluster, node, f"v{n}", devices=[f"gpu-{n}"], from_claim=FIRST) for n in range(2, 8)]

    async def at_once(kubelet: Kubelet) -> None:
        answers = await asyncio.gather(*(kubelet.prepare(claim) for claim in claims))
        assert not any(prepared.error for answer in answers for prepared in answer.values())

    talk(node, at_once)
    agent.kill()
    found = kept(node)
    assert found["p2"] == {"u1/gpu-0": {"env": {"B": "2"}, "annotations": {}}}, "other configs under the same UID"
    assert set(found["p1"]) == {f"v{n}/gpu-{n}" for n in range(2, 8)}


Left = dict[str, set[str]]
# By moment: what is on disk then, by pod, and after the next start.
MOMENTS: dict[str, tuple[Left, Left]] = {
    # in the set-up of the first claim, which was never answered: it is set up again at the next prepare
    "after follow 1": ({"p1": {"u1/gpu-0"}}, {"p1": {"u1/gpu-0"}}),
    # the first claim is prepared; now its pod gets a second one
    "after follow 2": ({"p1": {"u1/gpu-0", "u2/gpu-1"}}, {"p1": {"u1/gpu-0", "u2/gpu-1"}}),
    # another pod has joined the first claim, which only the configs know yet: it is not in the claim's file
    "after follow 3": ({"p1": {"u1/gpu-0", "u2/gpu-1"}, "p2": {"u1/gpu-0"}}, {"p1": {"u1/gpu-0", "u2/gpu-1"}}),
    # in the unprepare of the second claim: it is finished at the start
    "before delete_claim 1": (
        {"p1": {"u1/gpu-0", "u2/gpu-1"}, "p2": {"u1/gpu-0"}},
        {"p1": {"u1/gpu-0"}, "p2": {"u1/gpu-0"}},
    ),
    "after delete_claim 1": ({"p1": {"u1/gpu-0"}, "p2": {"u1/gpu-0"}}, {"p1": {"u1/gpu-0"}, "p2": {"u1/gpu-0"}}),
}


@pytest.mark.parametrize("moment", MOMENTS)
def test_after_a_kill_between_a_claim_and_the_configs_of_its_pods_they_agree(
    cluster: LocalApiServer, node: Node, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    left, after = MOMENTS[moment]
    with monkeypatch.context() as environment:
        environment.setenv("DIE_AT", moment)
        agent = node.start(program=KILLED)
    claims = [
        allocate(cluster, node, from_claim=FIRST),
        allocate(cluster, node, "u2", devices=["gpu-1"], from_claim=SECOND),
    ]

    async def say(kubelet: Kubelet) -> None:
        await kubelet.prepare(claims[0])
        await kubelet.prepare(claims[1])
        allocate(cluster, node, pods=("p1", "p2"), from_claim=FIRST)
        await kubelet.prepare(claims[0])
        await kubelet.unprepare(claims[1])

    async def until_it_dies(kubelet: Kubelet) -> None:
        saying = asyncio.create_task(say(kubelet))
        while agent.running:
            assert not saying.done(), "the agent has survived"
            await asyncio.sleep(0.01)
        saying.cancel()

    talk(node, until_it_dies)
    assert devices(kept(node)) == left

    cluster.go_down()  # otherwise its first review would learn about the pods of the present
    agent = node.start()
    assert counted(agent) == len(after)
    claims_of = {uid: state.pod_uids for uid, state in node.claims().items()}
    assert all(pod in claims_of[name.partition("/")[0]] for pod, names in after.items() for name in names)
    agent.kill()
    assert devices(kept(node)) == after


def devices(configs: dict[str, dict[str, Any]]) -> dict[str, set[str]]:
    return {pod: set(found) for pod, found in configs.items()}


def leftover(node: Node, pod: str, device: str, claim_uid: str) -> None:
    with PodConfigStore(node.folder / "p" / "pods", boot_id=node.boot_id) as store:
        store.set_device_config(pod, device, DeviceConfig({"env": {}}, claim_uid, "c", "default"))


def test_configs_that_belong_to_no_claim_go_at_the_start(cluster: LocalApiServer, node: Node) -> None:
    agent = node.start()
    assert not prepare(node, allocate(cluster, node, from_claim=FIRST)).error
    agent.terminate()
    for pod in ("p1", "stranger"):
        leftover(node, pod, "old-gpu-1", "old")
    agent = node.start()
    agent.terminate()
    assert devices(kept(node)) == {"p1": {"u1/gpu-0"}}


def test_nothing_goes_while_a_claim_is_unknown(cluster: LocalApiServer, node: Node) -> None:
    """Its pods may be among those that belong to no other claim."""
    agent = node.start()
    assert not prepare(node, allocate(cluster, node, from_claim=FIRST)).error
    agent.terminate()
    for path in node.state.glob("u1*"):
        path.write_bytes(b"{")
    cluster.go_down()
    agent = node.start()
    assert agent.details()["state"] == "degraded"
    assert counted(agent) == 1
    assert "not cleaning up the configs of pods while 1 claims are unknown" in agent.log


def test_configs_that_cannot_be_removed_fail_no_unprepare(
    cluster: LocalApiServer, node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DIE_AT", "failing delete_claim 1")
    agent = node.start(program=KILLED)
    claim = allocate(cluster, node, from_claim=FIRST)
    assert not prepare(node, claim).error
    assert unprepare(node, claim) == ""
    assert "the configs of its pods stay on disk until the next start" in agent.log
    assert node.holdings() == {}
