"""Three members, of which some are killed or stopped under load: nothing acknowledged is lost, no write comes late."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from checkpointmanager import CheckpointManager, CheckpointWriteFailed, DirectoryLocked
from checkpointmanager.etcd import EtcdStore, EtcdUnavailable

from ...long import times
from ..processes import LIMIT, until
from .agent import KEY, AgentProcess
from .history import writes_below
from .servers import Cluster, any_etcd, killable_etcd

THREADS = 4
TIMEOUT = 2.0


@pytest.fixture(scope="module")
def three(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Of a version that may be killed, if there is one."""
    cluster = Cluster(killable_etcd() or any_etcd(), tmp_path_factory.mktemp("three"), members=3)
    yield cluster
    cluster.close()


@pytest.fixture
def mortals(three: Cluster) -> Cluster:
    """The same, only where members may be killed."""
    if not killable_etcd():
        pytest.skip(
            "killing members needs another etcd than 3.5.0 to 3.5.2, which may lose what they committed (etcd#13766): "
            "apt-get install etcd-server"
        )
    return three


class Load:
    """Threads that count up, each its own key, and the journal of what was acknowledged to them."""

    def __init__(self, cluster: Cluster, prefix: str) -> None:
        self.cluster = cluster
        self.prefix = prefix
        self.store = EtcdStore(cluster.endpoints, prefix, ttl=60, timeout=TIMEOUT, owner="load")
        self._manager: CheckpointManager[Any] = CheckpointManager(self.store)
        self.acknowledged = dict.fromkeys(range(THREADS), 0)
        self.doubts = 0
        self._errors: list[BaseException] = []
        self._stop = threading.Event()
        self._threads = [threading.Thread(target=self._run, args=(number,)) for number in range(THREADS)]

    def _run(self, thread: int) -> None:
        try:
            while not self._stop.is_set():
                self._count_up(thread)
        except BaseException as error:  # noqa: BLE001 - raised below, where the test sees it
            self._errors.append(error)

    def _count_up(self, thread: int) -> None:
        number = self.acknowledged[thread] + 1
        try:
            self._manager.create_checkpoint(f"k{thread}", {"by": "load", "number": number})
            self.acknowledged[thread] = number
        except CheckpointWriteFailed as error:
            self.doubts += error.in_doubt
        except EtcdUnavailable:
            pass

    def follow(self, each: int) -> None:
        """Until so many more were acknowledged to each thread."""
        wanted = {thread: count + each for thread, count in self.acknowledged.items()}
        until(lambda: self._errors or all(self.acknowledged[thread] >= wanted[thread] for thread in wanted), 60)
        assert not self._errors

    def __enter__(self) -> Load:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join(LIMIT)
        assert not self._errors

    def check(self) -> None:
        """What is there is what was acknowledged, or what was still under way; and nothing was made twice or late."""
        found = {key: checkpoint.data["number"] for key, checkpoint in self._manager.load().checkpoints.items()}
        for thread, acknowledged in self.acknowledged.items():
            assert found[f"k{thread}"] in (acknowledged, acknowledged + 1)
        self.store.close()
        history: dict[str, list[int]] = {}
        generations: dict[str, list[int]] = {}
        for write in writes_below(self.cluster.endpoints, self.prefix):
            assert write.holder == "load"
            history.setdefault(write.key, []).append(write.data["number"])
            generations.setdefault(write.key, []).append(write.generation)
        for key, numbers in history.items():
            # A number may be written again after a doubt, as a new generation; it never goes back.
            assert numbers == sorted(numbers)
            assert set(numbers) == set(range(1, numbers[-1] + 1))
            assert generations[key] == [*range(1, len(numbers) + 1)]


def test_a_leader_killed_under_load_costs_nothing_that_was_acknowledged(mortals: Cluster, prefix: str) -> None:
    with Load(mortals, prefix) as load:
        for _ in range(times(2, 30)):
            load.follow(20)
            leader = mortals.leader()
            leader.kill()
            load.follow(20)
            leader.start(mortals.program)
            mortals.wait_for(leader)
    load.check()


def test_all_members_killed_at_once_bring_back_what_was_acknowledged(mortals: Cluster, prefix: str) -> None:
    with Load(mortals, prefix) as load:
        for _ in range(times(1, 15)):
            load.follow(20)
            for member in mortals.members:
                member.kill()
            for member in mortals.members:
                member.start(mortals.program)
            for member in mortals.members:
                mortals.wait_for(member)
            load.follow(20)
    load.check()


def test_a_leader_that_is_stopped_is_left_for_another_and_its_old_requests_change_nothing(
    three: Cluster, prefix: str
) -> None:
    with Load(three, prefix) as load:
        for _ in range(times(1, 20)):
            load.follow(10)
            leader = three.leader()
            leader.signal(signal.SIGSTOP)
            load.follow(20)
            leader.signal(signal.SIGCONT)
            load.follow(20)
    load.check()


def test_without_a_majority_writes_fail_in_time_and_go_on_afterwards(three: Cluster, prefix: str) -> None:
    with Load(three, prefix) as load:
        load.follow(5)
        for member in three.members[:2]:
            member.signal(signal.SIGSTOP)
        until(lambda: load.doubts >= THREADS)  # each has had its answer while nobody could answer
        for member in three.members[:2]:
            member.signal(signal.SIGCONT)
        load.follow(5)
    load.check()


def test_an_owner_stopped_past_its_time_to_live_while_the_leader_changes_is_refused(
    mortals: Cluster, prefix: str
) -> None:
    with AgentProcess("first", prefix, 1, mortals.endpoints) as first:
        first.follow(20)
        first.signal(signal.SIGSTOP)
        with AgentProcess("second", prefix, 1, mortals.endpoints) as second:
            leader = mortals.leader()
            leader.kill()
            second.follow(20)
            leader.start(mortals.program)
            first.signal(signal.SIGCONT)
            first.follow(100_000)
            second.follow(20)
    assert first.locked
    writes = [write for write in writes_below(mortals.endpoints, prefix) if write.key == KEY]
    assert {(write.data["by"], write.holder) for write in writes} == {("first", "first"), ("second", "second")}
    numbers = [write.data["number"] for write in writes]
    assert numbers == sorted(numbers)
    assert {*first.done, *second.done} <= {*numbers}


def test_a_second_endpoint_is_used_when_the_first_is_dead(three: Cluster, prefix: str) -> None:
    dead = "http://127.0.0.1:1"
    with pytest.raises((EtcdUnavailable, DirectoryLocked)):
        EtcdStore([dead], prefix, timeout=0.2)
    store = EtcdStore([dead, *three.endpoints], prefix)
    assert store.keys() == []
    store.close()
