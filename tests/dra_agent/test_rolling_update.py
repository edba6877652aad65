"""Old and new process overlap: the new one stands by and reports ready, then the old one stops."""

from __future__ import annotations

import asyncio
import time

import grpc
import pytest

from dra_agent.rehearsal import Node
from draState.plugin.rehearsal import Journal, Kubelet, LocalApiServer, Pods

from .conversation import claim_for, prepare, talk, until


def test_with_surge_no_call_is_lost(cluster: LocalApiServer, capsys: pytest.CaptureFixture[str]) -> None:
    async def main(node: Node) -> float:
        journal = Journal()
        old = await asyncio.to_thread(node.start)
        async with Kubelet(node.registry, node.driver) as kubelet:
            pods = Pods(cluster, kubelet, journal, driver=node.driver, pool=node.pool, devices=node.devices)
            load = asyncio.create_task(pods.run(8))
            await asyncio.sleep(0.3)

            new = await asyncio.to_thread(node.start)  # returns when it is ready
            details = await asyncio.to_thread(new.details)
            assert details["phase"] == "standby"
            assert "'agent-1'" in details["holder"], "names the owner of the state"
            assert old.running
            await asyncio.sleep(0.2)
            started = time.monotonic()
            assert await asyncio.to_thread(old.terminate) == 0
            await asyncio.to_thread(new.wait_until_ready, "serving")
            gap = time.monotonic() - started
            assert (await kubelet.register()).name == node.driver, "kubelet finds the new socket"

            before = journal.acknowledged
            await asyncio.sleep(0.3)
            assert journal.acknowledged > before, "the new one works"
            pods.ended.set()
            await load
            assert journal.differences(node.holdings()) == []
            assert pods.errors == []
            assert node.cdi_holdings() == node.holdings()
            return gap

    with Node(cluster.address, 16) as node:
        gap = asyncio.run(main(node))
    with capsys.disabled():
        print(f"\n  from SIGTERM of the old agent to the new one serving: {gap * 1000:.0f} ms")


def test_a_standby_takes_over_from_one_that_was_killed_and_removes_its_dead_sockets(
    node: Node, cluster: LocalApiServer
) -> None:
    claim = claim_for(cluster, node, "a", "gpu-0")
    old = node.start()
    first = prepare(node, claim)
    new = node.start(pod="22222222-second")
    assert new.details()["phase"] == "standby"
    old.kill()
    new.wait_until_ready("serving")
    assert {path.name for path in node.folder.rglob("*.sock")} == {
        "dra-22222222.sock",
        f"{node.driver}-22222222-reg.sock",
    }
    assert talk(node, lambda kubelet: kubelet.prepare(claim), instance="-22222222")[claim.uid] == first


def test_with_sockets_of_their_own_no_call_meets_a_closed_door(node: Node, cluster: LocalApiServer) -> None:
    """Kubelet watches its registry once a second and repeats a call that failed only after more than a minute."""
    devices = [f"gpu-{n}" for n in range(8)]
    answered: list[str] = []

    async def prepare_all_the_time(kubelet: Kubelet, ended: asyncio.Event) -> None:
        number = 0
        while not ended.is_set():
            number += 1
            claim = claim_for(cluster, node, f"u{number}", devices[number % 8])
            answered.append((await kubelet.prepare(claim, once=True))[claim.uid].error)
            assert (await kubelet.unprepare(claim))[claim.uid] == ""

    async def main() -> None:
        kubelet, ended = Kubelet(node.registry, node.driver), asyncio.Event()
        watching = asyncio.create_task(kubelet.watch_registry())
        await asyncio.to_thread(until, lambda: kubelet.registered == 1)
        load = asyncio.create_task(prepare_all_the_time(kubelet, ended))
        new = await asyncio.to_thread(node.start, pod="22222222-uid-of-the-new-pod")
        assert new.details()["phase"] == "standby"
        await asyncio.to_thread(until, lambda: kubelet.registered == 2)
        before = len(answered)
        assert await asyncio.to_thread(old.terminate) == 0
        await asyncio.to_thread(new.wait_until_ready, "serving")
        await asyncio.to_thread(until, lambda: len(answered) >= before + 8 and kubelet.registered == 1)
        ended.set()
        await load
        watching.cancel()
        await kubelet.close()

    old = node.start(pod="11111111-uid-of-the-old-pod")
    asyncio.run(main())
    assert set(answered) == {""}
    assert len(list((node.folder / "p").glob("*.sock"))) == 1


def test_a_standby_with_sockets_of_its_own_can_be_stopped_and_lets_waiting_calls_go(
    node: Node, cluster: LocalApiServer
) -> None:
    async def main() -> None:
        kubelet = Kubelet(node.registry, node.driver)
        watching = asyncio.create_task(kubelet.watch_registry())
        await asyncio.to_thread(until, lambda: kubelet.registered == 1)
        standby = await asyncio.to_thread(node.start, pod="22222222-second")
        await asyncio.to_thread(until, lambda: kubelet.registered == 2)
        claim = claim_for(cluster, node, "a", "gpu-0")
        waiting = asyncio.create_task(kubelet.prepare(claim, once=True))
        await asyncio.sleep(0.2)
        assert not waiting.done()
        assert await asyncio.to_thread(standby.terminate) == 0
        with pytest.raises(grpc.aio.AioRpcError):
            await waiting
        await asyncio.to_thread(until, lambda: kubelet.registered == 1)
        assert (await kubelet.prepare(claim, once=True))[claim.uid].devices, "by the first, which still owns the state"
        watching.cancel()
        await kubelet.close()

    node.start(pod="11111111-first")
    asyncio.run(main())
