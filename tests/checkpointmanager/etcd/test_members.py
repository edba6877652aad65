"""Three members, some of them killed or stopped under load: nothing acknowledged is lost, no write arrives late."""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest

from checkpointmanager import DirectoryLocked
from checkpointmanager.etcd import EtcdStore, EtcdUnavailable

from ...long import times
from ..processes import until
from .agent import KEY, AgentProcess
from .history import History
from .load import THREADS, Load
from .servers import Cluster, any_etcd, killable_etcd


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


def test_a_leader_killed_under_load_costs_nothing_that_was_acknowledged(mortals: Cluster, prefix: str) -> None:
    with Load(mortals, prefix) as load:
        for _ in range(times(2, 30)):
            load.follow(20)
            leader = mortals.leader()
            leader.kill()
            load.follow(20)
            leader.start(mortals.program)
            mortals.wait_for(leader)
    load.check(History(mortals.endpoints, prefix))


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
    load.check(History(mortals.endpoints, prefix))


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
    load.check(History(three.endpoints, prefix))


def test_without_a_majority_writes_fail_in_time_and_go_on_afterwards(three: Cluster, prefix: str) -> None:
    with Load(three, prefix) as load:
        load.follow(5)
        for member in three.members[:2]:
            member.signal(signal.SIGSTOP)
        until(lambda: load.doubts >= THREADS)  # each has had its error in time
        with pytest.raises(EtcdUnavailable):  # the last member has a value, but it may not be the newest
            load.manager.get_checkpoint("k0")
        for member in three.members[:2]:
            member.signal(signal.SIGCONT)
        load.follow(5)
    load.check(History(three.endpoints, prefix))


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
    writes = [write for write in History(mortals.endpoints, prefix).writes() if write.key == KEY]
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
