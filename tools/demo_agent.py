"""The demo's second part: a DRA agent over real gRPC, killed under load, then given a damaged claim file.

Everything but the cluster is real: the agent is a separate process, the client speaks kubelet's side of the
protocol, a local HTTP server replaces the API server, and checkpoint-verify runs as an operator would run it.
"""

from __future__ import annotations

import asyncio
import random
import subprocess
import sys

from dra_agent.rehearsal import Node
from draState.plugin.rehearsal import Claim, Journal, Kubelet, LocalApiServer, Pods

KILLS = 8
PODS = 12  # at once


async def run(node: Node, cluster: LocalApiServer) -> None:
    print(f"2. A DRA agent serves {PODS} pods at once over gRPC. It is killed with SIGKILL under load, {KILLS} times.")
    journal = Journal()
    agent = await asyncio.to_thread(node.start)
    async with Kubelet(node.registry, node.driver, patience=60) as kubelet:
        pods = Pods(cluster, kubelet, journal, driver=node.driver, pool=node.pool, devices=node.devices)
        load = asyncio.create_task(pods.run(PODS))
        chance = random.Random(1)
        for number in range(1, KILLS + 1):
            await asyncio.sleep(chance.uniform(0.1, 0.5))
            await asyncio.to_thread(agent.kill)
            agent = await asyncio.to_thread(node.start)
            print(f"   kill {number}: {journal.acknowledged} acknowledged calls so far; the agent is back and serving")
        pods.ended.set()
        await load
        while len(journal.prepared) < 3:  # two claims are damaged below, and one stays healthy
            await pods.start()
        expect(journal.differences(node.holdings()) == [], "every acknowledged claim is there, no device is held twice")
        expect(node.cdi_holdings() == node.holdings(), "the CDI files agree with the claims")

        flipped, cut = (node.file_of(uid) for uid in sorted(journal.prepared)[:2])
        print("\n3. The agent is stopped. The disk flips one bit in one claim's file and loses half of another.")
        print("   The API server, with whose help the agent would heal the second one, cannot be reached.")
        await asyncio.to_thread(agent.terminate)
        blob = bytearray(flipped.read_bytes())
        blob[300] ^= 0b100
        flipped.write_bytes(blob)
        cut.write_bytes(cut.read_bytes()[: cut.stat().st_size // 2])
        checkpoint_verify(1, node, "verify", node.state)
        cluster.go_down()
        agent = await asyncio.to_thread(node.start)
        unknown = agent.details()["unknown_claims"]
        expect(agent.details()["state"] == "degraded", "the agent starts anyway, and reports that it is degraded")
        expect(list(unknown) == [cut.stem], "it has repaired the flipped bit, and names the claim whose file is cut")
        healthy = max(journal.prepared)
        again = (await kubelet.prepare(Claim(healthy, f"claim-{healthy[:13]}")))[healthy]
        expect(not again.error, "the other claims are served")

        print("\n4. The operator stops the agent and rolls back one generation. The damaged bytes are kept.")
        expect(await asyncio.to_thread(agent.terminate) == 0, "SIGTERM ends it cleanly")
        checkpoint_verify(0, node, "repair", "--rollback", "--yes", "--all", node.state)
        checkpoint_verify(0, node, "verify", node.state)
        cluster.listen()
        agent = await asyncio.to_thread(node.start)
        prepared = (await kubelet.prepare(Claim(cut.stem, f"claim-{cut.stem[:13]}")))[cut.stem]
        expect(not prepared.error, "kubelet prepares the claim again and gets the same device")
        expect(journal.differences(node.holdings()) == [], "everything that was acknowledged is still there")
        expect(agent.details()["state"] == "good", "the agent reports that its state is good")
        await asyncio.to_thread(agent.terminate)


def checkpoint_verify(expected: int, node: Node, *arguments: object) -> None:
    """Run the command as an operator would, and print its output."""
    words = [str(argument) for argument in arguments]
    print(f"   $ checkpoint-verify {' '.join(words).replace(str(node.state), 'DIR')}", flush=True)
    command = [sys.executable, "-m", "checkpoint_verify", *words]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    for line in (ran.stdout + ran.stderr).replace(str(node.state), "DIR").splitlines():
        print(f"     {line}")
    expect(ran.returncode == expected, f"exit code {ran.returncode}")


def expect(holds: bool, what: str) -> None:
    print(f"   {'ok' if holds else 'NO'}: {what}", flush=True)
    if not holds:
        sys.exit(1)


def main() -> None:
    with LocalApiServer() as cluster, Node(cluster.address, 2 * PODS) as node:
        asyncio.run(run(node, cluster))
    print("\nAll good.")


if __name__ == "__main__":
    main()
