"""The agent dies at every step: before and after each write, and before and after a driver has done its work.

The next process always finds a record of everything that a driver holds, and reconcile cleans it up.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from draState import Pod

from .claims import GPU, NIC, claim_of, pod_of
from .drivers import Died
from .node import Node, assert_indexes_agree, assert_memory_equals_disk

SHARED = claim_of("shared", GPU, NIC)
FIRST = pod_of("pod-1", claim_of("a", GPU, NIC), SHARED)
SECOND = pod_of("pod-2", claim_of("b", NIC), SHARED)
Scenario = Callable[[Node], None]


def prepare(node: Node) -> None:
    node.manager.prepare_resources(FIRST)


def prepare_and_unprepare(node: Node) -> None:
    node.manager.prepare_resources(FIRST)
    node.manager.unprepare_resources(FIRST)


def share(node: Node) -> None:
    node.manager.prepare_resources(FIRST)
    node.manager.prepare_resources(SECOND)
    node.manager.unprepare_resources(FIRST)
    node.manager.unprepare_resources(SECOND)


def reconcile(node: Node) -> None:
    node.manager.reconcile([], complete=True)


class Fate:
    """Counts the steps of a node and ends it at one of them."""

    def __init__(self, fatal: int = 0) -> None:
        self.steps = 0
        self._fatal = fatal

    def step(self, *_: object) -> None:
        self.steps += 1
        if self.steps == self._fatal:
            raise Died

    def rules(self, node: Node) -> None:
        for driver in (node.gpu, node.nic):
            driver.before = driver.after = self.step
        node.store.before = node.store.after = self.step


def restarted(node: Node) -> None:
    """A new process on the same files and hardware, which will not die."""
    node.stop()
    node.start()
    Fate().rules(node)


def deaths(directory: Path, scenario: Scenario, before: Scenario = lambda _: None) -> Iterator[Node]:
    """A node that died at step 1, one at step 2, and so on until one survives; each is closed afterwards."""
    for fatal in range(1, 1000):
        node = Node(directory / f"death-{fatal}")
        try:
            before(node)
            Fate(fatal).rules(node)
            try:
                scenario(node)
            except Died:
                yield node
            else:
                return
        finally:
            node.stop()


def assert_nothing_is_left(node: Node) -> None:
    assert len(node.cache) == 0
    assert node.cache.pods() == frozenset()
    assert node.files() == []
    for driver in (node.gpu, node.nic):
        assert driver.prepared == set()
        for prepared in driver.calls_of("prepare"):
            later = driver.calls[driver.calls.index(("prepare", prepared)) :]
            let_go = {uid for operation, uids in later if operation == "unprepare" for uid in uids}
            assert set(prepared) <= let_go


@pytest.mark.parametrize(("scenario", "count"), [(prepare, 8), (prepare_and_unprepare, 14), (share, 28)])
def test_a_death_at_any_step_leaks_nothing(directory: Path, scenario: Scenario, count: int) -> None:
    died = 0
    for node in deaths(directory, scenario):
        died += 1
        restarted(node)
        held = node.gpu.prepared | node.nic.prepared
        assert held <= {claim.uid for claim in node.cache}, f"step {died}: a driver holds a forgotten claim"
        assert_indexes_agree(node.cache)
        assert_memory_equals_disk(node)

        reconcile(node)

        assert_nothing_is_left(node)
    assert died == count


def test_two_deaths_in_a_row_leak_nothing(directory: Path) -> None:
    died = 0
    for node in deaths(directory, share):
        for second in range(1, 1000):
            restarted(node)
            Fate(second).rules(node)
            try:
                reconcile(node)
                break
            except Died:
                died += 1
        restarted(node)
        reconcile(node)
        assert_nothing_is_left(node)
    assert died == 156


@pytest.mark.parametrize("survivor", [SECOND, "pod-2"])
def test_a_death_at_any_step_costs_a_living_pod_nothing(directory: Path, survivor: Pod | str) -> None:
    def leave(node: Node) -> None:
        node.manager.unprepare_resources(FIRST)

    def both(node: Node) -> None:
        node.manager.prepare_resources(FIRST)
        node.manager.prepare_resources(SECOND)

    died = 0
    for node in deaths(directory, leave, before=both):
        died += 1
        restarted(node)

        node.manager.reconcile([survivor], complete=True)

        assert {claim.uid: set(claim.state.pod_uids) for claim in node.cache} == {"b": {"pod-2"}, "shared": {"pod-2"}}
        assert node.gpu.prepared == {"shared"}
        assert node.nic.prepared == {"b", "shared"}
        assert_memory_equals_disk(node)
        node.manager.prepare_resources(SECOND)
        assert node.manager.get_resources(SECOND, "main").cdi_devices
    assert died == 8


def test_a_death_at_any_step_can_be_followed_by_the_same_pod_again(directory: Path) -> None:
    died = 0
    for node in deaths(directory, prepare):
        died += 1
        restarted(node)

        node.manager.prepare_resources(FIRST)

        assert node.manager.get_resources(FIRST, "main").cdi_devices
        assert {claim.uid: set(claim.state.pod_uids) for claim in node.cache} == {"a": {"pod-1"}, "shared": {"pod-1"}}
        assert_memory_equals_disk(node)
        reconcile(node)
        assert_nothing_is_left(node)
    assert died == 8
