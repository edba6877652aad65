"""Measures the store on etcd: with one member and with three on this machine, and with many nodes at once.

    cd tools && python -m bench.etcd [--etcd PROGRAM] [--nodes 200] [--claims 100] [--output FILE]

All members share the cores and the disk of this machine, so three of them are slower here than on three machines. Use
the figures to compare the set-ups with each other, and to see which limit is reached first.
"""

from __future__ import annotations

import argparse
import itertools
import json
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from checkpointmanager import CheckpointManager
from checkpointmanager.etcd import EtcdStore
from draState import CLAIMS, ClaimInfoState

from .claims import claim, key_of, random_numbers

SECONDS = 5.0  # of each measurement
PRESENT = 1000  # claims
RESTART = 10_000  # claims
BATCH = 100
TOGETHER = 10  # claims of a transaction

Manager = CheckpointManager[ClaimInfoState]
Figures = dict[str, Any]


def main() -> None:
    parser = argparse.ArgumentParser(prog="bench.etcd", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--etcd", default=shutil.which("etcd"), help="the server to start (default: the one in PATH)")
    parser.add_argument("--nodes", type=int, default=200)
    parser.add_argument("--claims", type=int, default=100, help="per node")
    parser.add_argument("--output", type=Path, help="also write the figures to this file")
    arguments = parser.parse_args()
    if not arguments.etcd:
        sys.exit("bench.etcd: no etcd found in PATH; give --etcd PROGRAM")
    figures: Figures = {"etcd": _version(arguments.etcd)}
    for members in (1, 3):
        with serving(arguments.etcd, members) as endpoints:
            figures[f"{members} members"] = {
                **one_owner(endpoints),
                "restart": restart(endpoints),
                "nodes": many_nodes(endpoints, arguments.nodes, arguments.claims),
            }
            print(json.dumps({f"{members} members": figures[f"{members} members"]}, indent=2), flush=True)
    if arguments.output:
        arguments.output.write_text(json.dumps(figures, indent=2) + "\n", encoding="utf-8")


@contextmanager
def serving(program: str, members: int) -> Iterator[list[str]]:
    """Start servers with default settings. Their data is deleted when they stop."""
    ports = _free_ports(2 * members)
    clients = [f"http://127.0.0.1:{port}" for port in ports[:members]]
    peers = [f"http://127.0.0.1:{port}" for port in ports[members:]]
    cluster = ",".join(f"m{number}={peer}" for number, peer in enumerate(peers))
    with tempfile.TemporaryDirectory(prefix="bench-etcd-") as folder:
        started = [
            subprocess.Popen(
                [
                    program,
                    *("--name", f"m{number}", "--data-dir", f"{folder}/m{number}", "--initial-cluster", cluster),
                    *("--listen-client-urls", client, "--advertise-client-urls", client),
                    *("--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer),
                ],
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
            for number, (client, peer) in enumerate(zip(clients, peers, strict=True))
        ]
        try:
            EtcdStore(clients, "/bench/ready", timeout=60).close()
            yield clients
        finally:
            for process in started:
                process.kill()
                process.wait()


def one_owner(endpoints: list[str]) -> Figures:
    """Durable updates (each keeps the previous generation), batches, transactions and reads by one owner."""
    with CheckpointManager(EtcdStore(endpoints, "/bench/one"), CLAIMS) as manager:
        _fill(manager, PRESENT)
        numbers = random_numbers(1_000_000, PRESENT, seed=7)
        changes = itertools.count(1)

        def update(worker: int) -> None:
            number = numbers[next(changes) % len(numbers)]
            manager.create_checkpoint(key_of(number), claim(number, next(changes)))

        def batch(_: int) -> None:
            with manager.batch() as many:
                for number in range(BATCH):
                    many.create_checkpoint(key_of(number), claim(number, next(changes)))

        def transact(_: int) -> None:
            with manager.transaction() as together:
                for number in range(TOGETHER):
                    together.create_checkpoint(key_of(number), claim(number, next(changes)))

        def read(_: int) -> None:
            manager.get_checkpoint(key_of(numbers[next(changes) % len(numbers)]))

        return {
            "update, 1 thread": _rate(update, 1),
            "update, 4 threads": _rate(update, 4),
            "update, 16 threads": _rate(update, 16),
            f"batch of {BATCH}": _rate(batch, 1, each=BATCH),
            f"transaction of {TOGETHER}": _rate(transact, 1, each=TOGETHER),
            "read, 1 thread": _rate(read, 1),
        }


def restart(endpoints: list[str]) -> Figures:
    """Open a prefix and read everything into objects."""
    with CheckpointManager(EtcdStore(endpoints, "/bench/restart"), CLAIMS) as manager:
        _fill(manager, RESTART)
    times = []
    for _ in range(3):
        started = time.perf_counter()
        with CheckpointManager(EtcdStore(endpoints, "/bench/restart"), CLAIMS) as manager:
            assert len(manager.load().checkpoints) == RESTART
            times.append(time.perf_counter() - started)
    return {"claims": RESTART, "seconds": round(statistics.median(times), 2)}


def many_nodes(endpoints: list[str], nodes: int, claims: int) -> Figures:
    """Each node owns its prefix, with its own lease; all nodes are in this process, and so share one core."""
    started = time.perf_counter()
    with ThreadPoolExecutor(16) as pool:
        managers = list(pool.map(lambda node: _node(endpoints, node), range(nodes)))
        opened = time.perf_counter() - started
        started = time.perf_counter()
        list(pool.map(lambda manager: _fill(manager, claims), managers))
        filled = time.perf_counter() - started
        changes = itertools.count(1)

        def update(_: int) -> None:
            change = next(changes)
            number = change % claims
            managers[change % nodes].create_checkpoint(key_of(number), claim(number, change))

        steady = _rate(update, 32, seconds=2 * SECONDS)
        started = time.perf_counter()
        loaded = sum(pool.map(lambda manager: len(manager.load().checkpoints), managers))
        restarted = time.perf_counter() - started
        assert loaded == nodes * claims
        lost = sum(_has_lost(manager) for manager in managers)
        size = _database_bytes(endpoints[0])
        list(pool.map(lambda manager: manager.close(), managers))
    return {
        "nodes": nodes,
        "claims per node": claims,
        "all opened in seconds": round(opened, 2),
        "all claims written in seconds": round(filled, 2),
        "update, 32 threads over all nodes": steady,
        "all nodes loaded at once in seconds": round(restarted, 2),
        "owners that lost their lock": lost,
        "database in MB": round(size / 1e6, 1),
    }


def _node(endpoints: list[str], node: int) -> Manager:
    return CheckpointManager(EtcdStore(endpoints, f"/bench/nodes/node-{node}", owner=f"node-{node}"), CLAIMS)


def _has_lost(manager: Manager) -> bool:
    try:
        manager.create_checkpoint(key_of(0), claim(0))
    except Exception as error:  # noqa: BLE001 - every error counts
        print(error, file=sys.stderr)
        return True
    return False


def _fill(manager: Manager, count: int) -> None:
    """Write each claim twice, so that it has a previous generation, as claims that have existed for a while do."""
    for change in range(2):
        for start in range(0, count, BATCH):
            with manager.batch() as batch:
                for number in range(start, min(start + BATCH, count)):
                    batch.create_checkpoint(key_of(number), claim(number, change))


def _rate(act: Callable[[int], object], threads: int, *, each: int = 1, seconds: float = SECONDS) -> Figures:
    """Operations per second, and the time that one operation takes."""
    end = time.perf_counter() + seconds
    times: list[list[float]] = [[] for _ in range(threads)]

    def run(worker: int) -> None:
        while (started := time.perf_counter()) < end:
            act(worker)
            times[worker].append(time.perf_counter() - started)

    workers = [threading.Thread(target=run, args=(worker,)) for worker in range(threads)]
    started = time.perf_counter()
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    took = time.perf_counter() - started
    all_times = sorted(itertools.chain(*times))
    return {
        "per second": round(len(all_times) * each / took),
        "p50 ms": round(all_times[len(all_times) // 2] * 1e3, 2),
        "p99 ms": round(all_times[len(all_times) * 99 // 100] * 1e3, 2),
    }


def _database_bytes(endpoint: str) -> int:
    request = urllib.request.Request(f"{endpoint}/v3/maintenance/status", b"{}")
    with urllib.request.urlopen(request, timeout=10) as reply:
        return int(json.load(reply)["dbSize"])


def _free_ports(count: int) -> list[int]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports


def _version(program: str) -> str:
    shown = subprocess.run([program, "--version"], capture_output=True, text=True, check=True).stdout
    return shown.split("\n")[0].removeprefix("etcd Version: ")


if __name__ == "__main__":
    main()
