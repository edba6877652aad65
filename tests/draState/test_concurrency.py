"""Many threads on one manager: claims that are shared, prepare racing unprepare, and everything at once."""

from __future__ import annotations

import itertools
import random
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial

import pytest

from checkpointmanager import CheckpointManager
from draState import CLAIMS, ClaimInfo, ClaimInfoCache, Pod

from .claims import GPU, NIC, claim_of, info_of, pod_of, state_of
from .drivers import Doorstop
from .node import Node, assert_indexes_agree, assert_memory_equals_disk

LIMIT = 20.0  # seconds; only a deadlock takes that long
RACES = 60
STRESS_SECONDS = 3.0


def race(*contestants: Callable[[], object]) -> None:
    """Run all at the same moment, as far as threads allow; raises what one of them raises."""
    start = threading.Barrier(len(contestants))

    def run(contestant: Callable[[], object]) -> None:
        start.wait(LIMIT)
        contestant()

    with ThreadPoolExecutor(len(contestants)) as pool:
        for running in [pool.submit(run, contestant) for contestant in contestants]:
            running.result(LIMIT)


def test_two_pods_that_share_a_claim_cause_one_call(real_node: Node) -> None:
    claim = claim_of("shared")
    driver = Doorstop()
    real_node.gpu.before = driver

    with ThreadPoolExecutor() as pool:
        first = pool.submit(real_node.manager.prepare_resources, pod_of("pod-1", claim))
        driver.wait_until_reached()
        second = pool.submit(real_node.manager.prepare_resources, pod_of("pod-2", claim))
        driver.let_go()
        first.result(LIMIT)
        second.result(LIMIT)

    assert real_node.gpu.calls == [("prepare", ("shared",))]
    assert real_node.on_disk()["shared"].pod_uids == {"pod-1", "pod-2"}


def test_many_pods_that_share_claims_in_any_order_neither_lose_a_reference_nor_wait_for_ever(real_node: Node) -> None:
    claims = [claim_of(uid, GPU, NIC) for uid in "abcd"]
    orders = list(itertools.permutations(claims))[::3]
    pods = [pod_of(f"pod-{number}", *order) for number, order in enumerate(orders)]

    race(*(partial(real_node.manager.prepare_resources, pod) for pod in pods))

    everybody = {pod.uid for pod in pods}
    assert {uid: set(state.pod_uids) for uid, state in real_node.on_disk().items()} == dict.fromkeys("abcd", everybody)
    assert sorted(uid for uids in real_node.gpu.calls_of("prepare") for uid in uids) == ["a", "b", "c", "d"]
    race(*(partial(real_node.manager.unprepare_resources, pod) for pod in pods))
    assert real_node.files() == []
    assert real_node.gpu.prepared == real_node.nic.prepared == set()


def test_prepare_racing_unprepare_of_the_same_pod_ends_in_one_of_two_states(real_node: Node) -> None:
    node = real_node
    pod = pod_of("pod-1", claim_of("a", GPU, NIC))
    for _ in range(RACES):
        race(lambda: node.manager.prepare_resources(pod), lambda: node.manager.unprepare_resources(pod))

        claim = node.cache.get("a")
        held = {"a"} if claim else set()
        assert node.gpu.prepared == node.nic.prepared == held
        assert claim is None or (claim.prepared and claim.state.pod_uids == {"pod-1"})
        assert_indexes_agree(node.cache)
        assert_memory_equals_disk(node)


def test_a_pod_that_comes_while_the_last_one_goes_gets_its_claim(real_node: Node) -> None:
    node, claim = real_node, claim_of("a")
    pods = [pod_of("pod-0", claim), pod_of("pod-1", claim)]
    node.manager.prepare_resources(pods[0])
    for turn in range(RACES):
        going, coming = pods[turn % 2], pods[(turn + 1) % 2]

        race(partial(node.manager.prepare_resources, coming), partial(node.manager.unprepare_resources, going))

        assert node.gpu.prepared == {"a"}
        assert node.on_disk()["a"].pod_uids == {coming.uid}
        assert node.manager.get_resources(coming, "main").cdi_devices
        assert_memory_equals_disk(node)


def test_reconcile_spares_a_pod_that_comes_after_the_pods_were_listed(real_node: Node) -> None:
    newcomer = pod_of("pod-1", claim_of("a"))

    def listed() -> list[Pod | str]:
        real_node.manager.prepare_resources(newcomer)
        return []

    real_node.manager.reconcile(listed, complete=True)

    assert real_node.manager.get_resources(newcomer, "main").cdi_devices


class Stress:
    """Workers on one node until the time is up or one has failed. Pods never come back under the same UID."""

    def __init__(self, node: Node) -> None:
        self.node = node
        self.alive: dict[str, Pod] = {}
        self.numbers = itertools.count()
        self.done: dict[str, int] = {}
        self._deadline = time.monotonic() + STRESS_SECONDS
        self._failed = threading.Event()

    def work(self, step: Callable[[random.Random], None], seed: int) -> None:
        dice = random.Random(seed)
        while time.monotonic() < self._deadline and not self._failed.is_set():
            try:
                step(dice)
            except BaseException:
                self._failed.set()
                raise
            self.done[step.__name__] = self.done.get(step.__name__, 0) + 1

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


def test_everything_at_once_keeps_every_invariant(real_node: Node) -> None:
    stress = Stress(real_node)
    workers = [stress.live, stress.live, stress.live, stress.write, stress.reconcile, stress.read, stress.read]

    with ThreadPoolExecutor(len(workers)) as pool:
        running = [pool.submit(stress.work, step, seed) for seed, step in enumerate(workers)]
        for worker in running:
            worker.result(STRESS_SECONDS + LIMIT)

    assert stress.done.keys() == {"live", "write", "reconcile", "read"}
    assert_indexes_agree(real_node.cache)
    assert_memory_equals_disk(real_node)
    real_node.manager.reconcile([], complete=True)
    assert real_node.files() == []
    assert real_node.gpu.prepared == real_node.nic.prepared == set()


SECOND: dict[str, Callable[[ClaimInfoCache], object]] = {
    "change": lambda cache: cache.change(["a"], lambda known: [replace(known["a"], annotations={"second": "yes"})]),
    "mark": lambda cache: cache.mark("a", annotations={"second": "yes"}),
    "delete": lambda cache: cache.delete("a"),
}


@pytest.mark.parametrize("second", SECOND)
def test_a_change_of_a_claim_waits_for_the_one_under_way(node: Node, second: str) -> None:
    node.cache.put(info_of("a", ["pod-1"]))
    inside, go_on = threading.Event(), threading.Event()

    def slow(known: Mapping[str, ClaimInfo]) -> list[ClaimInfo]:
        inside.set()
        assert go_on.wait(20)
        return [replace(known["a"], state=state_of("a", ["pod-2"]))]

    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(node.cache.change, ["a"], slow)
        assert inside.wait(20)
        other = pool.submit(SECOND[second], node.cache)
        with pytest.raises(TimeoutError):
            other.result(0.1)
        go_on.set()
        first.result(20)
        other.result(20)
    claim = node.cache.get("a")
    assert (claim is None) == (second == "delete")
    if claim:
        assert (claim.annotations, claim.state) == ({"second": "yes"}, state_of("a", ["pod-2"]))
