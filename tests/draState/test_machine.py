"""Random lives of a node against a simple model: pods come and go, drivers fail, agents die, nodes reboot, bits rot."""

from __future__ import annotations

import itertools
from contextlib import suppress
from pathlib import Path
from typing import ClassVar

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

from checkpointmanager.testing import damage
from draState import ClaimInvalid, PrepareFailed, UnprepareFailed

from ..long import times
from .claims import GPU, NIC, claim_of, pod_of
from .drivers import Died, RecordingDriver
from .node import Node, assert_indexes_agree, assert_memory_equals_disk
from .test_crash import Fate

CLAIMS = {"a": claim_of("a", GPU), "b": claim_of("b", GPU, NIC), "c": claim_of("c", NIC), "d": claim_of("d", NIC, GPU)}
PODS = {
    uid: pod_of(uid, *(CLAIMS[claim] for claim in claims)) for uid, claims in [("p", "ab"), ("q", "bc"), ("r", "d")]
}
pods = st.sampled_from(sorted(PODS))
directories = itertools.count()


class NodeMachine(RuleBasedStateMachine):
    """The model: which pods each claim must remember, which are unknown, and which wait to be unprepared."""

    directory: ClassVar[Path]

    def __init__(self) -> None:
        super().__init__()
        self.node = Node(self.directory / str(next(directories)))
        self.references: dict[str, set[str]] = {}
        self.unknown: set[str] = set()
        self.unpreparing: set[str] = set()

    def teardown(self) -> None:
        self.node.gpu.errors.clear()
        self.node.manager.reconcile([], complete=True)
        left = (list(self.node.cache), self.node.files(), self.node.gpu.prepared, self.node.nic.prepared)
        self.node.stop()
        assert left == ([], [], set(), set())

    @rule(pod=pods)
    def prepare(self, pod: str) -> None:
        claims = PODS[pod].claims.keys()
        if claims & self.unpreparing:
            with pytest.raises(ClaimInvalid, match="being unprepared"):
                self.node.manager.prepare_resources(PODS[pod])
            return
        with suppress(PrepareFailed):
            self.node.manager.prepare_resources(PODS[pod])
        for uid in claims:
            self.references.setdefault(uid, set()).add(pod)
            self.unknown.discard(uid)

    @rule(pod=pods)
    def unprepare(self, pod: str) -> None:
        with suppress(UnprepareFailed):
            self.node.manager.unprepare_resources(pod)
        self._release({uid for uid, referring in self.references.items() if pod in referring}, {pod})

    @rule(active=st.sets(pods), by_uid=st.booleans())
    def reconcile(self, active: set[str], by_uid: bool) -> None:
        with suppress(UnprepareFailed):
            self.node.manager.reconcile(active if by_uid else [PODS[pod] for pod in active], complete=True)
        gone = set(PODS) - active
        self._release({uid for uid, referring in self.references.items() if gone & referring} | self.unpreparing, gone)
        if not by_uid or not active:
            self._unprepare(self.unknown - {uid for pod in active for uid in PODS[pod].claims})

    @rule(uid=st.sampled_from(sorted(CLAIMS)))
    def unprepare_claim(self, uid: str) -> None:
        with suppress(UnprepareFailed):
            self.node.manager.unprepare_claim(uid)
        self._unprepare({uid} & self.references.keys())

    @rule(uids=st.sets(st.sampled_from(sorted(CLAIMS)), max_size=2))
    def let_claims_fail(self, uids: set[str]) -> None:
        self.node.gpu.errors = dict.fromkeys(uids, "broken")

    @rule()
    def restart(self) -> None:
        self.node.restart()
        self._learn_about_unknown_claims()

    @rule(boot=st.integers(0, 5))
    def reboot(self, boot: int) -> None:
        self.node.reboot(f"boot-{boot}")
        self._learn_about_unknown_claims()

    @rule(pod=pods, fatal=st.integers(1, 12), leaving=st.booleans())
    def die_in_the_middle(self, pod: str, fatal: int, leaving: bool) -> None:
        """Each claim is as it was before, or as it should have been after."""
        before = {uid: set(referring) for uid, referring in self.references.items()}
        Fate(fatal).rules(self.node)
        with suppress(Died):
            self.unprepare(pod) if leaving else self.prepare(pod)
        for driver in (self.node.gpu, self.node.nic):
            driver.before = driver.after = lambda _: None
        self.node.restart()
        found = {claim.uid: set(claim.state.pod_uids) for claim in self.node.cache}
        for uid in (before.keys() | found.keys()) - self.unknown:
            old = before.get(uid, set())
            new = old - {pod} if leaving else old | {pod}
            assert found.get(uid, set()) in (old, new, set() if uid in self.unpreparing else old)
        self.references = found
        self.unknown &= self.node.cache.report().unknown.keys()
        self._learn_about_unknown_claims()

    @precondition(lambda self: self.references)
    @rule(data=st.data())
    def rot_a_bit(self, data: st.DataObject) -> None:
        """It is repaired exactly and changes nothing."""
        uid = data.draw(st.sampled_from(sorted(self.references)))
        if uid not in self.unknown:
            self.node.stop()
            damage.flip_bit(self.node.directory, uid, data.draw(st.integers(0, 200)) * 8)
            self.node.start()
            self._learn_about_unknown_claims()

    @precondition(lambda self: self.references)
    @rule(data=st.data())
    def rot_beyond_repair(self, data: st.DataObject) -> None:
        """Only the previous generation is known; other claims are unchanged."""
        uid = data.draw(st.sampled_from(sorted(self.references)))
        self.node.stop()
        damage.edit_by_hand(self.node.directory, uid)  # whatever damage it had before
        self.node.start()
        self.unknown.add(uid)
        self._learn_about_unknown_claims()

    @invariant()
    def memory_is_as_it_should_be(self) -> None:
        assert {claim.uid: set(claim.state.pod_uids) for claim in self.node.cache} == self.references
        assert self.node.cache.report().unknown.keys() == self.unknown
        assert_indexes_agree(self.node.cache)

    @invariant()
    def the_disk_is_as_it_should_be(self) -> None:
        if not self.unknown:
            assert_memory_equals_disk(self.node)
        files = {name.removesuffix(".json") for name in self.node.files() if name.endswith(".json")}
        assert files == self.references.keys()

    @invariant()
    def nothing_that_a_driver_holds_is_forgotten(self) -> None:
        assert self.node.gpu.prepared | self.node.nic.prepared <= self.references.keys()
        for claim in self.node.cache:
            if claim.prepared:
                assert all(claim.uid in driver.prepared for driver in self._drivers_of(claim.uid))

    def _drivers_of(self, uid: str) -> list[RecordingDriver]:
        allocations = CLAIMS[uid].allocations or {}
        return [driver for driver in (self.node.gpu, self.node.nic) if driver.name in allocations]

    def _release(self, uids: set[str], pods: set[str]) -> None:
        """The pods are gone, and so are their references; with the last one, the claim goes too."""
        for uid in uids:
            left = self.references[uid] - pods
            if uid in self.unpreparing or not (left or uid in self.unknown):
                self._unprepare({uid})
            else:
                self.references[uid] = left

    def _unprepare(self, uids: set[str]) -> None:
        """It is gone unless its driver refuses; all drivers are called for an unknown one."""
        for uid in uids:
            called = uid in self.unknown or self.node.gpu in self._drivers_of(uid)
            if called and uid in self.node.gpu.errors:
                self.unpreparing.add(uid)
            else:
                del self.references[uid]
                self.unknown.discard(uid)
                self.unpreparing.discard(uid)

    def _learn_about_unknown_claims(self) -> None:
        """A new process knows only their previous generation, and not that they are being unprepared."""
        self.unpreparing.clear()
        for uid in self.unknown:
            claim = self.node.claim(uid)
            assert claim.guessed
            self.references[uid] = set(claim.state.pod_uids)


def test_a_node_survives_any_life(directory: Path) -> None:
    NodeMachine.directory = directory
    run_state_machine_as_test(
        NodeMachine,
        settings=settings(
            phases=[Phase.generate],  # a failing life is printed in full; shrinking takes minutes
            max_examples=times(15, 300),
            stateful_step_count=30,
            deadline=None,
            database=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
