"""Short ways to call an agent from a synchronous test."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

from draState import PrepareResult
from draState.plugin.rehearsal import Claim, Kubelet, LocalApiServer, Node

R = TypeVar("R")
LIMIT = 60.0  # seconds; only a failure takes that long


def talk(node: Node, say: Callable[[Kubelet], Awaitable[R]], instance: str = "") -> R:
    """Register, make these calls, and disconnect. `instance` is in the name of a socket of its own."""

    async def main() -> R:
        async with Kubelet(node.registry, node.driver + instance) as kubelet:
            return await say(kubelet)

    return asyncio.run(main())


def claim_for(cluster: LocalApiServer, node: Node, uid: str, *devices: str) -> Claim:
    """A claim to which the scheduler gave these devices."""
    claim = Claim(uid, f"claim-{uid}")
    cluster.allocate(uid, claim.name, devices, driver=node.driver, pool=node.pool, pods=[f"pod-of-{uid}"])
    return claim


def prepare(node: Node, claim: Claim) -> PrepareResult:
    return talk(node, lambda kubelet: kubelet.prepare(claim))[claim.uid]


def unprepare(node: Node, claim: Claim) -> str:
    return talk(node, lambda kubelet: kubelet.unprepare(claim))[claim.uid]


def until(condition: Callable[[], bool]) -> None:
    """Wait until the condition holds."""
    end = time.monotonic() + LIMIT
    while not condition():
        assert time.monotonic() < end, "the condition did not become true"
        time.sleep(0.02)


def devices_of(prepared: PrepareResult) -> list[str]:
    assert not prepared.error, prepared.error
    return [device.device_name for device in prepared.devices]
