"""Device health, from a device node that vanishes to the report that kubelet gets."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import grpc
import grpc.aio

from dra_agent.rehearsal import Node
from draState.plugin import Device, Finding, Health, HealthStreamService, HealthWatch, Inventory, SocketServer
from draState.plugin.rehearsal import HealthReport, Kubelet, LocalApiServer

from .conversation import LIMIT, talk
from .conversation import until as wait_until

UNKNOWN, HEALTHY, UNHEALTHY = 0, 1, 2
KUBELET_FORGETS_AFTER = 30  # seconds without a report
Reports = AsyncIterator[dict[tuple[str, str], HealthReport]]


@contextlib.contextmanager
def node_with(cluster: LocalApiServer, folder: Path, devices: int = 2) -> Iterator[Node]:
    """Each of its devices has one device node, which is a file here."""
    nodes = [folder / f"gpu{n}" for n in range(devices)]
    for each in nodes:
        each.touch()
    offered = [{"name": f"gpu-{n}", "device_nodes": [str(each)]} for n, each in enumerate(nodes)]
    with Node(cluster.address, offered) as node:
        yield node


async def until(reports: Reports, device: str, health: int) -> HealthReport:
    """Read reports until the device has this health; earlier reports may say anything."""
    async with asyncio.timeout(LIMIT):
        async for report in reports:
            found = next(each for (_, name), each in report.items() if name == device)
            if found.health == health:
                return found
    raise AssertionError("the stream has ended")


def test_a_device_whose_node_vanishes_is_unhealthy_and_not_offered_until_it_is_back(
    cluster: LocalApiServer, tmp_path: Path
) -> None:
    """Kubelet, the API server, /readyz and the metrics are told; a client that never reads delays nobody."""

    def taints() -> list[list[Any]]:
        return [device.get("taints", []) for item in cluster.slices() for device in item["spec"]["devices"]]

    async def main(kubelet: Kubelet) -> None:
        deaf = await unread(kubelet.channel)
        one, other = kubelet.watch_health(), kubelet.watch_health("v1alpha1")
        first = await anext(one)
        assert {key: found.health for key, found in first.items()} == {
            (node.pool, "gpu-0"): HEALTHY,
            (node.pool, "gpu-1"): HEALTHY,
        }
        await asyncio.to_thread(wait_until, lambda: taints() == [[], []])
        (tmp_path / "gpu1").unlink()
        gone = await until(one, "gpu-1", UNHEALTHY)
        assert gone == await until(other, "gpu-1", UNHEALTHY)
        assert (gone.message, gone.timeout) == (f"{tmp_path / 'gpu1'} is gone", KUBELET_FORGETS_AFTER)
        assert abs(gone.updated - time.time()) < LIMIT
        await asyncio.to_thread(wait_until, lambda: len(taints()) == 2 and taints()[1] != [])
        assert [(each["key"], each["effect"]) for each in taints()[1]] == [("gpu.example.com/unhealthy", "NoSchedule")]
        await asyncio.to_thread(check_pages)
        (tmp_path / "gpu1").touch()
        assert (await until(one, "gpu-1", HEALTHY)).message == ""
        await asyncio.to_thread(wait_until, lambda: taints() == [[], []])
        node.write("devices.json", {"driver": node.driver, "devices": [{"name": "other"}]})
        async with asyncio.timeout(LIMIT):
            while [name for _, name in await anext(one)] != ["other"]:
                pass
        assert not deaf.done()

    def check_pages() -> None:
        text = agent.get("/metrics")[1]
        assert f'dra_agent_device_health{{device_name="gpu-0",pool_name="{node.pool}"}} 1.0' in text
        assert f'dra_agent_device_health{{device_name="gpu-1",pool_name="{node.pool}"}} 2.0' in text
        details = agent.details()
        assert details["ready"], "a restart would not help"
        assert details["devices"] == {
            "unknown": 0,
            "healthy": 1,
            "unhealthy": 1,
            "unhealthy_devices": {f"{node.pool}/gpu-1": f"{tmp_path / 'gpu1'} is gone"},
        }

    with node_with(cluster, tmp_path) as node:
        agent = node.start()
        talk(node, main)


def test_a_health_check_that_hangs_makes_each_device_unknown_at_its_own_time_out() -> None:
    released = threading.Event()
    asked: list[int] = []

    def ask() -> dict[str, Finding]:
        asked.append(len(asked))
        if len(asked) == 2:
            released.wait()
        return {"soon": Finding(Health.HEALTHY, timeout=0.5), "late": Finding(Health.HEALTHY, timeout=100)}

    async def main() -> None:
        watch = HealthWatch(lambda: Inventory("d", "p", (Device("soon"), Device("late"))), ask=ask)
        await watch.look()
        for _ in range(2):
            await watch.look()
        assert watch.findings["p", "soon"] == Finding(Health.UNKNOWN, "the health check hangs", 0.5)
        assert watch.findings["p", "late"].health is Health.HEALTHY
        assert len(asked) == 2, "no other check while one hangs"
        released.set()
        while watch.findings["p", "soon"].health is not Health.HEALTHY:
            await watch.look()

    asyncio.run(asyncio.wait_for(main(), LIMIT))


async def unread(channel: grpc.aio.Channel) -> grpc.aio.Call:
    """An open stream that is never read."""
    watch: Any = channel.unary_stream("/v1.DRAResourceHealth/NodeWatchResources")
    call: grpc.aio.Call = watch(b"")
    await call.initial_metadata()
    return call


def test_after_a_kill_kubelet_connects_again_and_gets_the_present_health(
    cluster: LocalApiServer, tmp_path: Path
) -> None:
    async def main(kubelet: Kubelet) -> None:
        before = kubelet.watch_health()
        await until(before, "gpu-0", HEALTHY)
        await asyncio.to_thread(agent.kill)
        async with asyncio.timeout(LIMIT):
            assert [report async for report in before] == [], "the stream ends with the agent"
        (tmp_path / "gpu0").unlink()
        await asyncio.to_thread(node.start)
        await kubelet.register()
        await until(kubelet.watch_health(), "gpu-0", UNHEALTHY)

    with node_with(cluster, tmp_path) as node:
        agent = node.start()
        talk(node, main)


def test_sigterm_ends_all_streams_even_one_that_is_never_read(cluster: LocalApiServer, tmp_path: Path) -> None:
    async def main(kubelet: Kubelet) -> None:
        reports = kubelet.watch_health()
        await anext(reports)
        await unread(kubelet.channel)
        ending = asyncio.create_task(asyncio.to_thread(agent.terminate))
        async with asyncio.timeout(LIMIT):
            async for _ in reports:
                pass
            assert await ending == 0

    with node_with(cluster, tmp_path) as node:
        agent = node.start("--grace", "60")  # longer than this test waits
        talk(node, main)


def inventory(*paths: Path | str) -> Inventory:
    return Inventory("d", "p", (Device("gpu", device_nodes=tuple(map(str, paths))),))


def look_at(inventory: Inventory, host_root: str = "/") -> Mapping[tuple[str, str], Finding]:
    async def look() -> Mapping[tuple[str, str], Finding]:
        watch = HealthWatch(lambda: inventory, host_root)
        await watch.look()
        return watch.findings

    return asyncio.run(look())


def test_what_cannot_be_watched_is_unknown(tmp_path: Path) -> None:
    assert look_at(inventory())["p", "gpu"].health is Health.UNKNOWN
    (tmp_path / "file").touch()
    (tmp_path / "loop").symlink_to("loop")
    loop = look_at(inventory(tmp_path / "file", tmp_path / "loop"))["p", "gpu"]
    assert loop.health is Health.UNKNOWN
    assert loop.message.startswith(f"{tmp_path / 'loop'} cannot be checked: ")


def test_the_root_of_the_host_may_be_elsewhere_and_links_stay_inside_it(tmp_path: Path) -> None:
    dev = tmp_path / "host" / "dev"
    (dev / "by-id").mkdir(parents=True)
    (dev / "gpu0").touch()
    (dev / "absolute").symlink_to("/dev/gpu0")
    (dev / "by-id" / "relative").symlink_to("../absolute")
    (dev / "dangling").symlink_to("/dev/null")  # exists here, but not below that root
    for path, health in {
        "/dev/gpu0": Health.HEALTHY,
        "/dev/absolute": Health.HEALTHY,
        "/dev/by-id/relative": Health.HEALTHY,
        "/dev/dangling": Health.UNHEALTHY,
        "/dev/null": Health.UNHEALTHY,
    }.items():
        found = look_at(inventory(path), str(tmp_path / "host"))["p", "gpu"]
        assert found.health is health, path
        assert found.message == ("" if health is Health.HEALTHY else f"{path} is gone")


def test_one_missing_node_of_several_makes_a_device_unhealthy(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    expected = Finding(Health.UNHEALTHY, f"{tmp_path / 'none'} is gone")
    assert look_at(inventory(tmp_path / "file", tmp_path / "none"))["p", "gpu"] == expected
    assert look_at(inventory(tmp_path / "file" / "below"))["p", "gpu"].health is Health.UNHEALTHY


def serve(
    socket_path: str,
    health: HealthWatch,
    heartbeat: float,
    say: Callable[[grpc.aio.Channel, HealthStreamService], Awaitable[None]],
) -> None:
    """The service alone on a socket, without an agent."""

    async def main() -> None:
        service = HealthStreamService(health, heartbeat)
        server = SocketServer(socket_path, service.handlers())
        await health.look()
        await server.start()
        try:
            async with grpc.aio.insecure_channel(f"unix:{server.path}") as channel:
                await say(channel, service)
        finally:
            service.stop()
            await server.stop(0)

    asyncio.run(main())


def test_a_report_is_repeated_before_it_expires_only_after_a_new_check(socket_path: str) -> None:
    health = HealthWatch(inventory)

    async def say(channel: grpc.aio.Channel, service: HealthStreamService) -> None:
        call = await unread(channel)
        await call.read()  # type: ignore[attr-defined]
        again = asyncio.ensure_future(call.read())  # type: ignore[attr-defined]
        done, _ = await asyncio.wait({again}, timeout=0.3)
        assert not done, "thirty heartbeats without a new check"
        await health.look()
        async with asyncio.timeout(LIMIT):
            assert b"gpu" in await again

    serve(socket_path, health, 0.01, say)


def test_for_a_client_that_never_reads_nothing_is_queued(socket_path: str) -> None:
    """Some 0.5 MB per report, far more than gRPC buffers for one stream; 120 of them would be 60 MB."""
    looks = itertools.count()

    def changing() -> Inventory:
        names = [f"gpu-{n}-{next(looks)}" for n in range(400)]
        return Inventory("d", "p" * 1200, tuple(map(Device, names)))

    health = HealthWatch(changing)

    async def say(channel: grpc.aio.Channel, service: HealthStreamService) -> None:
        deaf = await unread(channel)
        await health.look()
        before = resident()
        for _ in range(120):
            await health.look()
        assert resident() - before < 30 << 20
        assert not deaf.done()

    serve(socket_path, health, 10, say)


def resident() -> int:
    """Bytes of memory that this process uses now."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
