"""Soak test: runs two agents under load, one that keeps running and one that is killed again and again.

The first shows that memory, descriptors and the directory do not grow; the second that nothing acknowledged is ever
lost. Prints one line per minute, then a verdict. Exit code 0 if it passed, 1 if not.
"""

from __future__ import annotations

import argparse
import json
import random
import select
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

from checkpointmanager import CheckpointManager
from soak_agents import contents, held_by

AGENTS = Path(__file__).with_name("soak_agents.py")
GROWTH_KIB = 8 << 10  # growth of memory from the second quarter to the last that does not count as a leak
GROWTH_SHARE = 0.05
LIFE_SECONDS = (0.3, 4.0)
POLITE = 0.2  # the share of the mortal agent's ends that are a SIGTERM
LIMIT = 60.0  # seconds that an agent may be silent


class Steady:
    """The agent that runs as long as the test, and everything it reported."""

    def __init__(self, directory: Path, threads: int, keys: int) -> None:
        command = [sys.executable, str(AGENTS), "steady", str(directory), str(threads), str(keys), "0"]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.rounds: list[dict[str, Any]] = []
        self._reading = threading.Thread(target=self._read)
        self._reading.start()

    def stop(self) -> int:
        assert self._process.stdin
        self._process.stdin.close()
        code = self._process.wait(LIMIT)
        self._reading.join()
        return code

    @property
    def has_ended(self) -> bool:
        return self._process.poll() is not None

    def _read(self) -> None:
        assert self._process.stdout
        for line in self._process.stdout:
            self.rounds.append(json.loads(line))


class Mortal:
    """The agent that is killed, and the journal of what it acknowledged."""

    def __init__(self, directory: Path, threads: int, keys: int) -> None:
        self._directory = directory
        self._threads = threads
        self._keys = keys
        self._dice = random.Random(1)
        self._allowed: dict[str, set[str]] = {}
        self._first = 1
        self.kills = 0
        self.acknowledged = 0
        self.failures: list[str] = []

    def live_and_die(self) -> None:
        size = [str(self._threads), str(self._keys), str(self._first)]
        command = [sys.executable, str(AGENTS), "mortal", str(self._directory), *size]
        with subprocess.Popen(command, stdout=subprocess.PIPE) as agent:
            assert agent.stdout
            output = self._read(agent.stdout.fileno(), self._dice.uniform(*LIFE_SECONDS))
            polite = self._dice.random() < POLITE
            agent.send_signal(signal.SIGTERM if polite else signal.SIGKILL)
            output += self._rest_of(agent)
        self.kills += not polite
        self._take_down(output)
        self._check()

    def _read(self, said: int, seconds: float) -> bytes:
        """Read for this long, counted from its first output."""
        output = b""
        until = time.monotonic() + LIMIT
        while (remaining := until - time.monotonic()) > 0:
            if select.select([said], [], [], remaining)[0]:
                if not output:
                    until = time.monotonic() + seconds
                piece = _read_some(said)
                if not piece:
                    break
                output += piece
        return output

    def _rest_of(self, agent: subprocess.Popen[bytes]) -> bytes:
        try:
            return agent.communicate(timeout=LIMIT)[0]
        except subprocess.TimeoutExpired:
            self.failures.append("the mortal agent did not end after SIGTERM")
            agent.kill()
            return agent.communicate()[0]

    def _take_down(self, output: bytes) -> None:
        for line in output.decode().split("\n")[:-1]:
            event, number, *changes = line.split(" ")
            if event == "failed":
                self.failures.append(line)
                continue
            self._first = max(self._first, int(number) + 1)
            self.acknowledged += event == "done"
            for key, outcome in (change.split("=") for change in changes):
                if event == "done":
                    self._allowed[key] = {outcome}
                else:
                    self._allowed.setdefault(key, {"-"}).add(outcome)

    def _check(self) -> None:
        with CheckpointManager(self._directory) as manager:
            loaded = manager.load()
        found = {key: str(checkpoint.data["number"]) for key, checkpoint in loaded.checkpoints.items()}
        self.failures += [f"{key}: {problem}" for key, problem in loaded.problems.items()]
        for key in found.keys() | self._allowed.keys():
            outcome, allowed = found.get(key, "-"), self._allowed.get(key, {"-"})
            if outcome not in allowed:
                self.failures.append(f"{key}: found {outcome}, may be one of {sorted(allowed)}")
            self._allowed[key] = {outcome}
        if temps := contents(self._directory)["temps"]:
            self.failures.append(f"{temps} temp files survived an open")


def _read_some(descriptor: int) -> bytes:
    with open(descriptor, "rb", buffering=0, closefd=False) as stream:
        return stream.read(1 << 16)


def growth(rounds: list[dict[str, Any]], what: str) -> tuple[float, float]:
    """The medians of the second and of the last quarter; the first is warm-up."""
    quarter = max(len(rounds) // 4, 1)
    early = statistics.median(one[what] for one in rounds[quarter : 2 * quarter] or rounds)
    late = statistics.median(one[what] for one in rounds[-quarter:])
    return early, late


def verdict(steady: list[dict[str, Any]], own: list[dict[str, Any]], failures: list[str], keys: int) -> list[str]:
    """Every reason to fail; empty if the test passed."""
    wrong = list(dict.fromkeys(failures))
    if len(steady) < 4:
        return [*wrong, "the steady agent finished too few rounds to judge it: run longer"]
    for name, rounds in (("the steady agent", steady), ("the supervisor, which opens the other one's directory", own)):
        early, late = growth(rounds, "rss")
        if late - early > max(GROWTH_KIB, early * GROWTH_SHARE):
            wrong.append(f"memory of {name} grew from {early:.0f} to {late:.0f} KiB")
        early, late = growth(rounds, "descriptors")
        if late > early:
            wrong.append(f"descriptors of {name} grew from {early:.0f} to {late:.0f}")
    if any(one["temps"] for one in steady):
        wrong.append("temp files were left when no thread was writing")
    # Per key a checkpoint, its previous generation and four damaged copies; plus the locks of two directories.
    if (most := max(one["files"] for one in steady)) > 6 * keys + 2:
        wrong.append(f"the directory had {most} files, more than {keys} keys can need")
    early, late = growth(steady, "threads")
    if late > early:
        wrong.append(f"threads grew from {early:.0f} to {late:.0f}")
    return wrong


def soak(minutes: float, directory: Path, threads: int, keys: int) -> list[str]:
    steady = Steady(directory / "steady", threads, keys)
    mortal = Mortal(directory / "mortal", 4, 40)
    own: list[dict[str, Any]] = []
    started = time.monotonic()
    minute = 1
    try:
        while time.monotonic() - started < minutes * 60 and not steady.has_ended:
            mortal.live_and_die()
            own.append(dict(held_by()))
            if time.monotonic() - started >= minute * 60 and steady.rounds:
                _report_minute(minute, steady.rounds, own, mortal)
                minute = int((time.monotonic() - started) // 60) + 1
    finally:
        code = steady.stop()
    failures = mortal.failures + [why for one in steady.rounds for why in one["failures"]]
    failures += [f"the steady agent ended with code {code}"] if code else []
    print(
        f"{steady.rounds[-1]['operations'] if steady.rounds else 0} operations of the steady agent in "
        f"{len(steady.rounds)} rounds; {mortal.kills} kills of the mortal one, {mortal.acknowledged} acknowledged"
    )
    return verdict(steady.rounds, own, failures, keys)


def _report_minute(minute: int, rounds: list[dict[str, Any]], own: list[dict[str, Any]], mortal: Mortal) -> None:
    last = rounds[-1]
    print(
        f"minute {minute:3}: {last['operations']} operations, memory {last['rss'] / 1024:.1f} MiB, "
        f"{last['descriptors']} descriptors, {last['threads']} threads, {last['files']} files of "
        f"{last['bytes'] / 1024:.0f} KiB, {last['temps']} temp files; {mortal.kills} kills, "
        f"{mortal.acknowledged} acknowledged, {len(mortal.failures)} lost; "
        f"supervisor {own[-1]['rss'] / 1024:.1f} MiB, {own[-1]['descriptors']} descriptors",
        flush=True,
    )


def main() -> int:
    parser = argparse.ArgumentParser(prog="tools/soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=60.0, help="duration (default: 60)")
    parser.add_argument("--threads", type=int, default=16, help="threads of the steady agent (default: 16)")
    parser.add_argument("--keys", type=int, default=320, help="keys of the steady agent (default: 320)")
    parser.add_argument("--directory", type=Path, help="a folder on the disk to test (default: the temp folder)")
    options = parser.parse_args()
    if not 1 <= options.threads <= options.keys:
        parser.error("--threads must be between 1 and --keys")
    directory = Path(tempfile.mkdtemp(prefix="soak-", dir=options.directory))
    wrong = soak(options.minutes, directory, options.threads, options.keys)
    if wrong:
        print(f"FAILED; the files are kept in {directory}:")
        for why in wrong[:20]:
            print(f"  {why}")
        return 1
    shutil.rmtree(directory)
    print("PASSED: nothing was lost, and memory, descriptors, threads and directories stayed flat")
    return 0


if __name__ == "__main__":
    sys.exit(main())
