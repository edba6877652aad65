"""Random lives of a health store compared with a simple model, and many threads at once."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from checkpointmanager import CheckpointManager, MemoryStore
from draState import DEVICE_HEALTH, DeviceHealth, DeviceHealthStore, Health, HealthChange

from ..long import times
from .health import BOOT, GPU, HEALTHY, NIC, UNHEALTHY, HealthNode, Untimed, device
from .stores import WatchedStore, lost_sync, no_space

DRIVERS, DEVICES, TIMEOUTS = (GPU, NIC), ("a", "b", "c"), (2, 5, 30)
Key = tuple[str, str]


@pytest.fixture
def node(directory: Path) -> Iterator[HealthNode]:
    node = HealthNode(directory)
    yield node
    node.store.close()


class Model:
    """The last report of each device, when it came, and how long it counts."""

    def __init__(self) -> None:
        self.said: dict[Key, tuple[Health, str, float, float]] = {}
        self.heard: dict[Key, tuple[Health, str]] = {}  # what the watchers believe

    def reads(self, key: Key, now: float) -> tuple[Health, str]:
        health, message, timeout, at = self.said.get(key, (Health.UNKNOWN, "", 0.0, now))
        return (health, message) if now - at <= timeout else (Health.UNKNOWN, "")

    def restarted(self, node: HealthNode) -> None:
        """Unchanged reports may not be on disk, at least the newest of them; watchers start again."""
        for key, (health, message, timeout, at) in list(self.said.items()):
            found = node.store.get(key[0], "p", key[1])
            known = found.reported if found.is_known else at - max(10.0, timeout / 2)
            assert at - max(10.0, timeout / 2) <= known <= at
            self.said[key] = (health, message, timeout, known)
            self.heard[key] = found.health, found.message


@pytest.mark.parametrize("seed", range(times(20, 2000)))
def test_a_random_life_matches_the_model_and_watchers_believe_what_is_true(node: HealthNode, seed: int) -> None:
    chance, model = random.Random(seed), Model()

    def believe() -> None:
        for driver, names in node.changes:
            for name in names:
                found = node.store.get(driver, "p", name)
                model.heard[driver, name] = found.health, found.message
        del node.changes[:]

    for _ in range(30):
        driver = chance.choice(DRIVERS)
        match chance.choice(["report", "report", "report", "forget", "time", "time", "restart", "refuse"]):
            case "report":
                names = chance.sample(DEVICES, chance.randrange(4))
                report = [
                    device(name, chance.choice(list(Health)), chance.choice(["", "why"]), chance.choice(TIMEOUTS))
                    for name in names
                ]
                node.store.report(driver, report)
                model.said |= {
                    (driver, each.device_name): (each.health, each.message, each.timeout, node.time) for each in report
                }
            case "forget":
                node.store.forget(driver)
                model.said = {key: said for key, said in model.said.items() if key[0] != driver}
            case "time":
                node.time += chance.choice([0.5, 1, 3, 20])
                node.store.expire()
            case "restart":
                if not node.store.problems:
                    node.restart()
                    model.restarted(node)
            case "refuse":
                node.disk.fail(chance.choice(["store", "delete"]), chance.choice([no_space, lost_sync])(driver))
                node.store.report(driver, [device("a", UNHEALTHY, "why", 30)])
                model.said[driver, "a"] = (UNHEALTHY, "why", 30, node.time)
                node.disk.work_again()
        believe()
        for key in ((driver, name) for driver in DRIVERS for name in DEVICES):
            found = node.store.get(key[0], "p", key[1])
            assert (found.health, found.message) == model.reads(key, node.time)
            assert model.heard.get(key, (Health.UNKNOWN, "")) == model.reads(key, node.time)


def test_a_disk_that_hangs_holds_up_neither_reads_nor_watchers_nor_other_drivers(directory: Path) -> None:
    reached, go_on, heard = threading.Event(), threading.Event(), threading.Semaphore(0)
    disk = WatchedStore(MemoryStore())

    def hang(_: str, keys: tuple[str, ...]) -> None:
        if GPU in keys:
            reached.set()
            assert go_on.wait(30)

    disk.before = hang
    now = [1000.0]
    with (
        Untimed(disk, on_change=lambda _: heard.release(), clock=lambda: now[0], boot_id=BOOT) as store,
        ThreadPoolExecutor() as pool,
    ):
        try:
            hanging = pool.submit(store.report, GPU, [device()])
            assert reached.wait(30)
            assert heard.acquire(timeout=30)
            assert store.get(GPU, "p", "d0").health is HEALTHY
            store.report(NIC, [device(timeout=60)])
            assert heard.acquire(timeout=30)
            now[0] += 31
            store.expire()
            assert heard.acquire(timeout=30)
            assert not hanging.done()
        finally:
            go_on.set()


def test_after_many_threads_the_disk_and_the_watchers_have_the_last_report(directory: Path) -> None:
    believed: dict[Key, DeviceHealth] = {}
    looking = threading.Lock()

    def changed(change: HealthChange) -> None:
        with looking:
            believed.update({(change.driver, name): store.get(change.driver, "p", name) for _, name in change.devices})

    def life(seed: int) -> None:
        chance = random.Random(seed)
        for _ in range(times(20, 300)):
            driver = chance.choice(DRIVERS)
            if chance.random() < 0.1:
                store.forget(driver)
            else:
                names = chance.sample(DEVICES, chance.randrange(1, 4))
                store.report(driver, [device(name, chance.choice(list(Health)), timeout=600) for name in names])

    with DeviceHealthStore(directory, on_change=changed, durability="atomic") as store:
        with ThreadPoolExecutor(6) as pool:
            list(pool.map(life, range(6)))
        memory = store.drivers()
        assert store.problems == {}
        for (driver, name), health in believed.items():
            assert health.health is store.get(driver, "p", name).health
    with CheckpointManager(directory, DEVICE_HEALTH, read_only=True) as manager:
        disk = {driver: checkpoint.data.devices for driver, checkpoint in manager.load().checkpoints.items()}
    assert {driver: _said(devices) for driver, devices in disk.items()} == {
        driver: _said(devices) for driver, devices in memory.items()
    }


def _said(devices: tuple[DeviceHealth, ...]) -> dict[str, Health]:
    return {each.device_name: each.health for each in devices}
