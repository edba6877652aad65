"""A thousand claims through gRPC, each durable when it is answered."""

from __future__ import annotations

import asyncio
import time

import pytest

from draState.plugin.rehearsal import Journal, Kubelet, LocalApiServer, Node, Pods

CLAIMS = 1000
AT_ONCE = 64


def test_a_thousand_claims(cluster: LocalApiServer, capsys: pytest.CaptureFixture[str]) -> None:
    async def main(node: Node) -> tuple[float, float]:
        journal = Journal()
        limit = asyncio.Semaphore(AT_ONCE)
        async with Kubelet(node.registry, node.driver) as kubelet:
            pods = Pods(cluster, kubelet, journal, driver=node.driver, pool=node.pool, devices=node.devices)

            async def limited(step: object) -> object:
                async with limit:
                    return await step  # type: ignore[misc]

            started = time.perf_counter()
            claims = await asyncio.gather(*(limited(pods.start()) for _ in range(CLAIMS)))
            prepared = time.perf_counter()
            assert journal.differences(node.holdings()) == []
            assert node.cdi_holdings() == node.holdings() == journal.prepared
            between = time.perf_counter()
            await asyncio.gather(*(limited(pods.end(claim)) for claim in claims))  # type: ignore[arg-type]
            ended = time.perf_counter()
            assert node.holdings() == node.cdi_holdings() == {}
            assert pods.errors == []
        return CLAIMS / (prepared - started), CLAIMS / (ended - between)

    with Node(cluster.address, CLAIMS) as node:
        node.start()
        prepares, unprepares = asyncio.run(main(node))
    with capsys.disabled():
        print(f"\n  {CLAIMS} claims, {AT_ONCE} at once: {prepares:.0f} prepared/s, {unprepares:.0f} unprepared/s")
