"""The demo's first part: a process is killed in mid-write again and again, and nothing is lost.

The process prepares and unprepares claims. It reports each step before it begins, and again when it is
acknowledged. The parent keeps a journal of these reports, kills the process with SIGKILL, starts the next one,
and compares what that one rebuilt from its files with the journal.
"""

from __future__ import annotations

import itertools
import json
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from checkpointmanager import Event, EventKind
from draState import (
    Allocation,
    ClaimInfoCache,
    ClaimRef,
    Device,
    DRAManager,
    Pod,
    PrepareResult,
    ResourceClaim,
)

DRIVER = "gpu.example.com"
CLAIMS = [f"claim-{letter}" for letter in "abcdefghijkl"]
KILLS = 300

Journal = dict[str, set[str]]  # claim -> its pods


class Gpus:
    """A driver with one device per claim."""

    def prepare(self, claims: Sequence[ClaimRef]) -> Mapping[str, PrepareResult]:
        return {claim.uid: PrepareResult((Device("node", f"gpu-{claim.uid[-1]}"),)) for claim in claims}

    def unprepare(self, claims: Sequence[ClaimRef]) -> Mapping[str, str]:
        return {claim.uid: "" for claim in claims}


def pod_with(claim: str, pod: str) -> Pod:
    resource = ResourceClaim(claim, claim, "default", {DRIVER: Allocation()}, frozenset({pod}))
    return Pod(pod, pod, "default", {"gpu": resource})


def run_agent(directory: Path, number: int, pipe: int) -> None:
    """Rebuild the cache, report its content, then change claims until killed."""
    chance = random.Random(number)
    swept: list[Event] = []
    cache = ClaimInfoCache(directory, on_event=swept.append)
    manager = DRAManager(cache, {DRIVER: Gpus()})

    def say(text: str) -> None:
        os.write(pipe, f"{text}\n".encode())

    unfinished = any(event.kind is EventKind.STALE_FILES for event in swept)
    pods = {claim.uid: sorted(claim.state.pod_uids) for claim in cache}
    say(json.dumps({"pods": pods, "unfinished": unfinished, "unknown": dict(cache.report().unknown)}))
    for step in range(1_000_000):
        claim = chance.choice(CLAIMS)
        found = cache.get(claim)
        if found and len(found.state.pod_uids) > 1:
            pod = min(found.state.pod_uids)
            say(f"unprepare {claim} {pod}")
            manager.unprepare_resources(pod)
        else:
            pod = f"pod-{number}-{step}"
            say(f"prepare {claim} {pod}")
            manager.prepare_resources(pod_with(claim, pod))
        say("done")


class Agent:
    """The parent's side of one agent process."""

    def __init__(self, directory: Path, number: int) -> None:
        receive, send = os.pipe()
        self._pid = os.fork()
        if self._pid == 0:
            try:
                run_agent(directory, number, send)
            finally:
                os._exit(1)
        os.close(send)
        self._heard = os.fdopen(receive, encoding="utf-8")
        self.greeting = json.loads(self._heard.readline())

    def kill(self) -> list[str]:
        """Send SIGKILL; returns every line that the agent wrote before."""
        os.kill(self._pid, signal.SIGKILL)
        os.waitpid(self._pid, 0)
        with self._heard:
            return [line.strip() for line in self._heard if line.endswith("\n")]


def write_down(journal: Journal, heard: list[str]) -> list[str]:
    """Record what was acknowledged; returns the step that was begun but not acknowledged, if there is one."""
    steps = [line.split() for line in heard]
    for step, after in itertools.pairwise(steps):
        if step != ["done"] and after == ["done"]:
            apply(journal, step)
    return [] if not steps or steps[-1] == ["done"] else steps[-1]


def apply(journal: Journal, step: list[str]) -> None:
    what, claim, pod = step
    pods = journal.setdefault(claim, set())
    pods.add(pod) if what == "prepare" else pods.discard(pod)


def compare(journal: Journal, rebuilt: Mapping[str, Sequence[str]], pending: list[str]) -> None:
    """Check that every claim is as acknowledged; the one running step is either done or not, never half done."""
    for claim in CLAIMS:
        found = set(rebuilt.get(claim, ()))
        allowed = [journal.get(claim, set())]
        if pending and pending[1] == claim:
            after = {claim: set(allowed[0])}
            apply(after, pending)
            allowed.append(after[claim])
        if found not in allowed:
            sys.exit(f"LOST: {claim} has {sorted(found)}, but {sorted(allowed[0])} was acknowledged")
        journal[claim] = found


def run(directory: Path) -> None:
    print(f"1. An agent keeps {len(CLAIMS)} claims. It is killed with SIGKILL in mid-write, {KILLS} times.")
    journal: Journal = {}
    pending: list[str] = []
    steps = unfinished = 0
    started = time.monotonic()
    chance = random.Random(1)
    for number in range(KILLS + 1):
        agent = Agent(directory, number)
        compare(journal, agent.greeting["pods"], pending)
        unfinished += agent.greeting["unfinished"]
        time.sleep(chance.uniform(0.001, 0.02))
        heard = agent.kill()
        pending = write_down(journal, heard)
        steps += heard.count("done")
        if number % 75 == 0 and number:
            print(f"   {number:4} kills: {steps} acknowledged changes, all of them present after each restart")
    print(f"   {unfinished} restarts found a half-written file of the killed agent and removed it.")
    print(f"   Nothing acknowledged was lost, and nothing was half written ({time.monotonic() - started:.0f} s).\n")


def main() -> None:
    directory = Path(tempfile.mkdtemp(prefix="demo-"))
    try:
        run(directory / "claims")
    finally:
        shutil.rmtree(directory)


if __name__ == "__main__":
    main()
