"""Many threads on one manager: reads never wait, claims are shared, prepare races unprepare, and everything at once."""

from __future__ import annotations

import itertools
import random
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from checkpointmanager import CheckpointManager
from draState import CLAIMS, ClaimInfo, ClaimInfoCache, Pod

from .claims import GPU, NIC, claim_of, info_of, pod_of
from .drivers import LIMIT, Doorstop, race
from .node import Node, assert_indexes_agree, assert_memory_equals_disk

RACES = 30
ROUNDS = 40  # of each worker


def read_everything(node: Node) -> dict[str, Any]:
    cache = node.cache
    return {
        "get": cache.get("a"),
        "by_name": cache.by_name("default", "claim-a"),
        "of_pod": cache.of_pod("pod-1"),
        "holders": cache.holders(GPU, "pool", "dev-a"),
        "pods": cache.pods(),
        "report": cache.report(),
        "len": len(cache),
        "all": list(cache),
        "might": node.manager.pod_might_need_to_unprepare("pod-1"),
        "resources": node.manager.pod_resources(pod_of("pod-1", claim_of("a"))),
        "infos": node.manager.container_claim_infos(pod_of("pod-1", claim_of("a")), "main"),
    }


def put_another_pod(node: Node) -> None:
    node.cache.put(info_of("a", ["pod-1", "pod-2"], ["dev-a"]))


def delete(node: Node) -> None:
    node.cache.delete("a")


def add_another_claim(node: Node) -> None:
    node.cache.put(info_of("b"))


@pytest.mark.parametrize("write", [put_another_pod, delete, add_another_claim])
def test_a_reader_finishes_while_a_writer_waits_for_the_disk(node: Node, write: Callable[[Node], None]) -> None:
    node.cache.put(info_of("a", ["pod-1"], ["dev-a"]))
    node.cache.mark("a", unpreparing=write is delete)  # as a deletion marks it before it goes to the disk
    before = read_everything(node)
    disk = Doorstop()
    node.store.before = disk

    with ThreadPoolExecutor() as pool:
        writing = pool.submit(write, node)
        disk.wait_until_reached()
        during = pool.submit(read_everything, node).result(LIMIT)
        disk.let_go()
        writing.result(LIMIT)

    assert during == before
    assert read_everything(node) != before


@pytest.mark.parametrize("operation", ["prepare", "unprepare"])
def test_readers_and_other_claims_go_on_while_a_driver_works(node: Node, operation: str) -> None:
    pod, other = pod_of("pod-1", claim_of("a")), pod_of("pod-2", claim_of("b"))
    if operation == "unprepare":
        node.manager.prepare_resources(pod)
    driver = Doorstop()
    node.gpu.before = lambda called: driver() if node.gpu.calls[-1] == (operation, ("a",)) else None

    with ThreadPoolExecutor() as pool:
        work = node.manager.prepare_resources if operation == "prepare" else node.manager.unprepare_resources
        working = pool.submit(work, pod)
        driver.wait_until_reached()
        during = pool.submit(read_everything, node).result(LIMIT)
        pool.submit(node.manager.prepare_resources, other).result(LIMIT)
        pool.submit(node.manager.unprepare_resources, other).result(LIMIT)
        driver.let_go()
        working.result(LIMIT)

    assert during["get"].unpreparing == (operation == "unprepare")
    assert not during["get"].prepared
    assert during["might"]


def test_many_pods_that_share_claims_in_any_order_neither_lose_a_reference_nor_wait_for_ever(node: Node) -> None:
    claims = [claim_of(uid, GPU, NIC) for uid in "abcd"]
    orders = list(itertools.permutations(claims))[::3]
    pods = [pod_of(f"pod-{number}", *order) for number, order in enumerate(orders)]

    race(*(partial(node.manager.prepare_resources, pod) for pod in pods))

    everybody = {pod.uid for pod in pods}
    assert {uid: set(state.pod_uids) for uid, state in node.on_disk().items()} == dict.fromkeys("abcd", everybody)
    assert sorted(uid for uids in node.gpu.calls_of("prepare") for uid in uids) == ["a", "b", "c", "d"]
    race(*(partial(node.manager.unprepare_resources, pod) for pod in pods))
    assert node.files() == []
    assert node.gpu.prepared == node.nic.prepared == set()


def test_prepare_racing_unprepare_of_the_same_pod_ends_in_one_of_two_states(node: Node) -> None:
    pod = pod_of("pod-1", claim_of("a", GPU, NIC))
    for _ in range(RACES):
        race(lambda: node.manager.prepare_resources(pod), lambda: node.manager.unprepare_resources(pod))

        claim = node.cache.get("a")
        held = {"a"} if claim else set()
        assert node.gpu.prepared == node.nic.prepared == held
        assert claim is None or (claim.prepared and claim.state.pod_uids == {"pod-1"})
        assert_indexes_agree(node.cache)
        assert_memory_equals_disk(node)


def test_a_pod_that_comes_while_the_last_one_goes_gets_its_claim(node: Node) -> None:
    claim = claim_of("a")
    pods = [pod_of("pod-0", claim), pod_of("pod-1", claim)]
    node.manager.prepare_resources(pods[0])
    for turn in range(RACES):
        going, coming = pods[turn % 2], pods[(turn + 1) % 2]

        race(partial(node.manager.prepare_resources, coming), partial(node.manager.unprepare_resources, going))

        assert node.gpu.prepared == {"a"}
        assert node.on_disk()["a"].pod_uids == {coming.uid}
        assert node.manager.get_resources(coming, "main").cdi_devices
        assert_memory_equals_disk(node)


def test_reconcile_spares_a_pod_that_comes_after_the_pods_were_listed(node: Node) -> None:
    newcomer = pod_of("pod-1", claim_of("a"))

    def listed() -> list[Pod | str]:
        node.manager.prepare_resources(newcomer)
        return []

    node.manager.reconcile(listed, complete=True)

    assert node.manager.get_resources(newcomer, "main").cdi_devices


class Stress:
    """Workers on one node, until all have made their rounds or one has failed. Pods never come back."""

    def __init__(self, node: Node) -> None:
        self.node = node
        self.alive: dict[str, Pod] = {}
        self.numbers = itertools.count()
        self._failed = threading.Event()

    def work(self, step: Callable[[random.Random], None], seed: int) -> None:
        dice = random.Random(seed)
        try:
            for _ in range(ROUNDS):
                if not self._failed.is_set():
                    step(dice)
        except BaseException:
            self._failed.set()
            raise

    def live(self, dice: random.Random) -> None:
        """A pod with its own claim and perhaps a shared one starts and ends, or vanishes and is left to reconcile."""
        number = next(self.numbers)
        own = claim_of(f"own-{number}", *dice.choice([(GPU,), (NIC,), (GPU, NIC)]))
        shared = claim_of(f"shared-{dice.randrange(3)}", GPU, NIC)
        pod = pod_of(f"pod-{number}", own, *[shared] * dice.randrange(2))
        self.alive[pod.uid] = pod
        self.node.manager.prepare_resources(pod)
        self.assert_durable(own.uid)
        assert self.node.manager.get_resources(pod, "main").cdi_devices
        del self.alive[pod.uid]
        if dice.random() < 0.7:
            self.node.manager.unprepare_resources(pod)
            assert own.uid not in self.node.cache
            assert not self.node.file_of(own.uid).exists()

    def write(self, dice: random.Random) -> None:
        """Write several claims at once that only the cache knows."""
        number = next(self.numbers)
        keeper = f"keeper-{number}"
        self.alive[keeper] = pod_of(keeper)
        uids = [f"direct-{number}-{index}" for index in range(dice.randrange(1, 4))]
        self.node.cache.put(*(info_of(uid, [keeper]) for uid in uids))
        for uid in uids:
            self.assert_durable(uid)
        self.node.cache.delete(*uids)
        assert not any(self.node.file_of(uid).exists() for uid in uids)
        del self.alive[keeper]

    def reconcile(self, dice: random.Random) -> None:
        by_uid = dice.random() < 0.5
        self.node.manager.reconcile(lambda: list(self.alive) if by_uid else list(self.alive.values()), complete=True)

    def read(self, dice: random.Random) -> None:
        """No record is torn, and no index has a wrong entry."""
        cache = self.node.cache
        for claim in cache:
            assert_whole(claim)
        for pod in cache.pods():
            assert all(pod in claim.state.pod_uids for claim in cache.of_pod(pod))
        name = f"claim-shared-{dice.randrange(3)}"
        found = cache.by_name("default", name)
        assert found is None or found.name == ("default", name)
        with cache._indexing:  # so that none of the four changes
            assert_indexes_agree(cache)

    def assert_durable(self, uid: str) -> None:
        """Memory equals disk after an acknowledged change of a claim that no other thread changes."""
        claim = self.node.cache.get(uid)
        with CheckpointManager(self.node.directory, CLAIMS, read_only=True) as reader:
            assert claim is not None
            assert reader.get_checkpoint(uid).data == claim.state


def assert_whole(claim: ClaimInfo) -> None:
    assert not claim.unknown
    assert not (claim.prepared and claim.unpreparing)
    assert claim.state.pod_uids
    if claim.prepared:
        assert all(driver.devices for driver in claim.state.driver_states.values())


def test_everything_at_once_keeps_every_invariant(node: Node) -> None:
    stress = Stress(node)
    workers = [stress.live, stress.live, stress.live, stress.write, stress.reconcile, stress.read, stress.read]

    with ThreadPoolExecutor(len(workers)) as pool:
        running = [pool.submit(stress.work, step, seed) for seed, step in enumerate(workers)]
        for worker in running:
            worker.result()

    assert_indexes_agree(node.cache)
    assert_memory_equals_disk(node)
    node.manager.reconcile([], complete=True)
    assert node.files() == []
    assert node.gpu.prepared == node.nic.prepared == set()


SECOND: dict[str, Callable[[ClaimInfoCache], object]] = {
    "change": lambda cache: cache.change(["a"], lambda known: [replace(known["a"], annotations={"second": "yes"})]),
    "mark": lambda cache: cache.mark("a", annotations={"second": "yes"}),
    "delete": lambda cache: cache.delete("a"),
}
