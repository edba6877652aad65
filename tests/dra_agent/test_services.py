"""An agent as a process: what it serves on its sockets and pages, and with which modes."""

from __future__ import annotations

import asyncio
import ctypes
import gc
import json
import os
import platform
import stat
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest

from checkpointmanager import __version__
from dra_agent.rehearsal import Node
from draState.plugin import SocketServer
from draState.plugin.rehearsal import AgentProcess, Claim, Kubelet, LocalApiServer, injected

from .cdirules import broken_rules
from .conversation import LIMIT, claim_for, devices_of, prepare, talk, unprepare, until


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalApiServer]:
    with LocalApiServer() as cluster:
        yield cluster


@pytest.fixture(scope="module")
def node(cluster: LocalApiServer) -> Iterator[Node]:
    with Node(cluster.address, [*({"name": f"gpu-{n}"} for n in range(8)), {"name": "shared", "shared": True}]) as node:
        yield node


@pytest.fixture(scope="module")
def agent(node: Node) -> AgentProcess:
    return node.start()


def test_it_registers_as_kubelet_expects(node: Node, agent: AgentProcess) -> None:
    async def main() -> Any:
        return await Kubelet(node.registry, node.driver).register()

    info = asyncio.run(main())
    assert (info.type, info.name) == ("DRAPlugin", node.driver)
    assert list(info.supported_versions) == [
        "v1.DRAPlugin",
        "v1beta1.DRAPlugin",
        "v1.DRAResourceHealth",
        "v1alpha1.DRAResourceHealth",
    ]
    assert Path(info.endpoint).is_absolute()
    assert Path(info.endpoint).is_socket()
    assert agent.details()["registration"] == "registered"


@pytest.mark.usefixtures("agent")
def test_sockets_and_state_are_for_this_user_alone(node: Node) -> None:
    modes = {
        path: stat.S_IMODE(path.stat().st_mode)
        for path in [*node.folder.rglob("*.sock"), node.folder / "p", node.state]
    }
    assert sorted(mode for path, mode in modes.items() if path.suffix == ".sock") == [0o600, 0o600]
    assert {mode for path, mode in modes.items() if path.suffix != ".sock"} == {0o700}


@pytest.mark.usefixtures("agent")
def test_folders_that_others_read_can_be_read_whatever_the_umask(node: Node) -> None:
    """The agent's umask is 077, and it made both."""
    assert [stat.S_IMODE(path.stat().st_mode) for path in (node.cdi, Path(node.registry))] == [0o755, 0o755]


def test_folders_that_were_there_keep_their_modes_and_only_the_socket_ever_appears_in_kubelets_registry(
    cluster: LocalApiServer,
) -> None:
    """Kubelet logs an error for each name that vanishes before it has looked, even one with a leading dot."""
    with Node(cluster.address) as node:
        folders = [node.cdi, Path(node.registry), node.folder / "p"]
        for folder in folders:
            folder.mkdir()
            folder.chmod(0o750)
        with Names(node.registry) as names:
            node.start().kill()
            assert len(list(node.folder.rglob("*.sock"))) == 2, "left behind"
            agent = node.start()
            assert list(talk(node, lambda kubelet: kubelet.pod_resources())) == [], "they were replaced"
            assert {stat.S_IMODE(folder.stat().st_mode) for folder in folders} == {0o750}
            assert agent.terminate() == 0
            assert not list(node.folder.rglob("*.sock"))
            assert "ended" in agent.log
            assert names.seen() == {f"{node.driver}-reg.sock"}


class Names:
    """Every name that appears in a folder, as the kernel reports it."""

    def __init__(self, folder: str) -> None:
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._descriptor = self._libc.inotify_init1(os.O_NONBLOCK)
        created, moved_to = 0x100, 0x80
        if self._libc.inotify_add_watch(self._descriptor, os.fsencode(folder), created | moved_to) < 0:
            pytest.skip("needs inotify")

    def seen(self) -> set[str]:
        events, names = os.read(self._descriptor, 1 << 16), set()
        while events:
            length = struct.unpack_from("iIII", events)[3]
            names.add(events[16 : 16 + length].rstrip(b"\0").decode())
            events = events[16 + length :]
        return names

    def __enter__(self) -> Names:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._descriptor)


@pytest.mark.usefixtures("agent")
def test_one_call_for_many_claims_succeeds_in_part(node: Node, cluster: LocalApiServer) -> None:
    good, gone = claim_for(cluster, node, "part-good", "gpu-0"), Claim("part-gone", "nowhere")
    answers = talk(node, lambda kubelet: kubelet.prepare(good, gone))
    assert devices_of(answers["part-good"]) == ["gpu-0"]
    assert "404" in answers["part-gone"].error
    assert talk(node, lambda kubelet: kubelet.unprepare(good, gone)) == {"part-good": "", "part-gone": ""}


@pytest.mark.usefixtures("agent")
def test_of_many_claims_for_one_device_exactly_one_gets_it(node: Node, cluster: LocalApiServer) -> None:
    claims = [claim_for(cluster, node, f"rival-{n}", "gpu-3") for n in range(20)]

    async def main(kubelet: Kubelet) -> None:
        answers = await asyncio.gather(*(kubelet.prepare(claim) for claim in claims))
        errors = [next(iter(answer.values())).error for answer in answers]
        assert sum(not error for error in errors) == 1
        assert all("gpu-3 is held by claim default/claim-rival-" in error for error in errors if error)
        assert set((await kubelet.unprepare(*claims)).values()) == {""}

    talk(node, main)


@pytest.mark.usefixtures("agent")
def test_both_versions_of_the_service_see_the_same_claims(node: Node, cluster: LocalApiServer) -> None:
    claim = claim_for(cluster, node, "versions", "gpu-1")

    async def main() -> None:
        older = Kubelet(node.registry, node.driver, version="v1beta1")
        async with older as old, Kubelet(node.registry, node.driver) as new:
            assert await old.prepare(claim) == await new.prepare(claim)
            assert await new.unprepare(claim) == await old.unprepare(claim) == {"versions": ""}

    asyncio.run(main())


@pytest.mark.usefixtures("agent")
def test_a_prioritized_list_gets_a_device(node: Node, cluster: LocalApiServer) -> None:
    cluster.allocate("list", "claim-list", ["gpu-0"], driver=node.driver, pool=node.pool, request="gpu/small")
    claim = Claim("list", "claim-list")
    assert injected(prepare(node, claim), "gpu") == [f"{node.driver}/device=list-gpu-0"]
    assert unprepare(node, claim) == ""


@pytest.mark.usefixtures("agent")
def test_both_devices_of_a_claim_are_seen_by_the_container(node: Node, cluster: LocalApiServer) -> None:
    claim = claim_for(cluster, node, "both", "gpu-0", "gpu-1")
    assert devices_of(prepare(node, claim)) == ["gpu-0", "gpu-1"]
    found = environment(node, "both")
    assert (found["DRA_DEVICE_GPU_0"], found["DRA_DEVICE_GPU_1"]) == ("gpu-0", "gpu-1")
    assert found["DRA_CLAIM_GPU_0"] == found["DRA_CLAIM_GPU_1"] == "both"
    assert unprepare(node, claim) == ""


@pytest.mark.usefixtures("agent")
def test_a_shared_device_goes_to_several_claims_with_a_share_each(node: Node, cluster: LocalApiServer) -> None:
    decided: dict[str, Any] = {"tolerations": [{"key": "ill", "operator": "Exists"}], "bindingConditions": ["Attached"]}

    def ask(uid: str, device: str, share: str, **more: Any) -> str:
        more["shareID"] = share
        cluster.allocate(uid, f"claim-{uid}", [device], driver=node.driver, pool=node.pool, **more)
        return prepare(node, Claim(uid, f"claim-{uid}")).error

    assert ask("sa", "shared", "s1", **decided) == ask("sb", "shared", "s2") == ""
    assert "held by claim default/claim-sa" in ask("sc", "shared", "s1")
    assert "is not for sharing" in ask("sd", "gpu-0", "s1")
    assert "which this node does not have" in ask("se", "gpu-9", "s1")
    found = environment(node, "sa")
    assert json.loads(found["DRA_ALLOCATION_SHARED_S1"]) == decided, "what the scheduler decided"
    assert "DRA_ALLOCATION_SHARED_S2" not in environment(node, "sb")
    assert [unprepare(node, Claim(uid, f"claim-{uid}")) for uid in ("sa", "sb")] == ["", ""]


@pytest.mark.usefixtures("agent")
def test_a_uid_that_is_no_name_is_refused_in_both_directions(node: Node) -> None:
    for uid in ("../../etc/passwd", "a/b", ".hidden", "x" * 300):
        claim = Claim(uid, "c")
        assert "UID of the claim is invalid" in prepare(node, claim).error
        assert "UID of the claim is invalid" in unprepare(node, claim)


@pytest.mark.usefixtures("agent")
def test_a_new_claim_with_the_name_of_an_old_one_is_another_claim(node: Node, cluster: LocalApiServer) -> None:
    old = claim_for(cluster, node, "old", "gpu-0")
    prepare(node, old)
    cluster.allocate("new", old.name, ["gpu-1"], driver=node.driver, pool=node.pool)
    new = Claim("new", old.name)
    assert devices_of(prepare(node, new)) == ["gpu-1"]
    assert unprepare(node, old) == ""
    assert node.cdi_holdings() == node.holdings() == {"new": ("gpu-1",)}
    assert unprepare(node, new) == ""


def environment(node: Node, uid: str) -> dict[str, str]:
    """What a container that gets all devices of a claim sees: later lines replace earlier ones."""
    (file,) = node.cdi.glob(f"*_{uid}.json")
    spec = json.loads(file.read_text())
    assert broken_rules(spec) == []
    return dict(line.split("=", 1) for device in spec["devices"] for line in device["containerEdits"]["env"])


@pytest.mark.usefixtures("agent")
def test_it_lists_which_pod_uses_which_device(node: Node, cluster: LocalApiServer) -> None:
    claim = claim_for(cluster, node, "listed", "gpu-2")
    assert devices_of(prepare(node, claim)) == ["gpu-2"]

    async def main(kubelet: Kubelet) -> None:
        (pod,) = await kubelet.pod_resources()
        assert (pod.name, pod.namespace) == ("pod-pod-of-listed", "default")
        (resource,) = pod.containers[0].dynamic_resources
        assert resource.claim_name == "claim-listed"
        (device,) = resource.claim_resources
        assert (device.driver_name, device.pool_name, device.device_name) == (node.driver, node.pool, "gpu-2")
        assert device.cdi_devices[0].name == f"{node.driver}/device=listed-gpu-2"
        assert await kubelet.pod("pod-pod-of-listed") == pod
        with pytest.raises(grpc.aio.AioRpcError) as error:
            await kubelet.pod("nobody")
        assert error.value.code() is grpc.StatusCode.NOT_FOUND

    talk(node, main)
    assert unprepare(node, claim) == ""


def test_pages(node: Node, cluster: LocalApiServer, agent: AgentProcess) -> None:
    claim = claim_for(cluster, node, "pages", "gpu-4")
    assert devices_of(prepare(node, claim)) == ["gpu-4"]
    assert unprepare(node, claim) == ""
    assert agent.get("/healthz") == (200, "ok\n")
    assert agent.get("/readyz")[0] == 200
    assert agent.get("/elsewhere")[0] == 404
    details = agent.details()
    assert (details["phase"], details["state"], details["unknown_claims"]) == ("serving", "good", {})
    text = agent.get("/metrics")[1]
    for name in (
        "checkpointmanager_writes_total",
        "checkpointmanager_sync_seconds_bucket",
        'dra_resource_claims_in_use{driver_name="<any>"}',
        'dra_agent_phase{phase="serving"} 1.0',
        f'dra_agent_build_info{{python="{platform.python_version()}",version="{__version__}"}} 1.0',
        'dra_operations_duration_seconds_bucket{is_error="false",le="0.1",operation_name="PrepareResources"}',
        'dra_grpc_operations_duration_seconds_count{driver_name="gpu.example.com",grpc_status_code="OK",'
        'method_name="/k8s.io.kubelet.pkg.apis.dra.v1.DRAPlugin/NodePrepareResources"}',
    ):
        assert name in text


def test_a_server_that_ends_leaves_the_socket_of_its_successor(socket_path: str) -> None:
    """gRPC removes whatever has the path of its socket, and only when the server is collected."""

    async def main() -> bool:
        old, new = SocketServer(socket_path, {}), SocketServer(socket_path, {})
        await old.start()
        await new.start()
        assert not old.in_place()
        await old.stop(0)
        del old
        gc.collect()
        await asyncio.sleep(0.1)
        left = new.in_place()
        await new.stop(0)
        return left

    assert asyncio.run(main())
    assert not Path(socket_path).exists()


@pytest.mark.parametrize("calls", [0, 1])
def test_a_server_waits_for_running_calls_and_not_for_a_stream_that_is_never_read(socket_path: str, calls: int) -> None:
    """gRPC alone would wait for the stream as for a call, for the whole grace period."""
    stuck, asked, answered = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def write(request: object, context: grpc.aio.ServicerContext[Any, Any]) -> None:
        asyncio.get_running_loop().call_later(0.5, stuck.set)
        while True:
            await context.write(b"x" * (1 << 20))

    async def answer(request: object, context: object) -> bytes:
        asked.set()
        await answered.wait()
        return b"y"

    handlers: dict[str, grpc.RpcMethodHandler[Any, Any]] = {
        "/a/Stream": grpc.unary_stream_rpc_method_handler(write),
        "/a/Call": grpc.unary_unary_rpc_method_handler(answer),
    }

    async def main() -> None:
        server = SocketServer(socket_path, handlers)
        await server.start()
        channel: Any
        async with grpc.aio.insecure_channel(f"unix:{server.path}") as channel:
            unread = channel.unary_stream("/a/Stream")(b"")
            await stuck.wait()
            called = [asyncio.ensure_future(channel.unary_unary("/a/Call")(b"")) for _ in range(calls)]
            if calls:
                await asked.wait()
            stopping = asyncio.create_task(server.stop(60))
            if calls:
                done, _ = await asyncio.wait({stopping}, timeout=1)
                assert not done, "a call is under way"
                answered.set()
            await asyncio.wait_for(stopping, LIMIT)
            assert [await each for each in called] == [b"y"] * calls
            unread.cancel()

    asyncio.run(main())


def test_an_agent_without_its_socket_reports_itself_unhealthy(cluster: LocalApiServer) -> None:
    with Node(cluster.address) as node:
        agent = node.start()
        (node.folder / "p" / "dra.sock").unlink()
        until(lambda: agent.get("/healthz")[0] == 503)
        text = agent.get("/healthz")[1]
        assert "dra.sock" in text
        assert agent.get("/readyz")[0] == 503
        assert agent.terminate() == 0
