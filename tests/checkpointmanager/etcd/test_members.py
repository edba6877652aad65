"""Three members, some of them killed or stopped under load: nothing acknowledged is lost, no write arrives late."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator

import pytest

from checkpointmanager.etcd import EtcdStore, EtcdUnavailable

from ...long import times
from ..processes import LIMIT, run_together, until
from .agent import KEY, AgentProcess
from .history import History
from .line import Line
from .load import THREADS, Load
from .servers import Cluster, any_etcd, killable_etcd, stopped


@pytest.fixture(scope="module")
def three(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Of a version that may be killed, if there is one."""
    pings = ["--grpc-keepalive-min-time", "100ms"]  # as often as a test likes
    folder = tmp_path_factory.mktemp("three")
    cluster = Cluster(killable_etcd() or any_etcd(), folder, members=3, arguments=pings)
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
    load.check(History(mortals.etcd, prefix))


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
    load.check(History(mortals.etcd, prefix))


def test_a_leader_that_is_stopped_is_left_for_another_and_its_old_requests_change_nothing(
    three: Cluster, prefix: str
) -> None:
    with Load(three, prefix) as load:
        for _ in range(times(1, 20)):
            load.follow(10)
            with stopped(three.leader()):
                load.follow(20)
            load.follow(20)
    load.check(History(three.etcd, prefix))


def test_without_a_majority_writes_fail_in_time_and_go_on_afterwards(three: Cluster, prefix: str) -> None:
    with Load(three, prefix, timeout=0.5) as load:
        load.follow(5)
        with stopped(*three.members[:2]):
            until(lambda: load.doubts >= THREADS)  # each has had its error in time
            with pytest.raises(EtcdUnavailable):  # the last member has a value, but it may not be the newest
                load.manager.get_checkpoint("k0")
        load.follow(5)
    load.check(History(three.etcd, prefix))


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
    writes = [write for write in History(mortals.etcd, prefix).writes() if write.key == KEY]
    assert {(write.data["by"], write.holder) for write in writes} == {("first", "first"), ("second", "second")}
    numbers = [write.data["number"] for write in writes]
    assert numbers == sorted(numbers)
    assert {*first.done, *second.done} <= {*numbers}


def test_a_waiting_store_turns_to_another_member_when_the_one_that_it_watches_hangs(
    three: Cluster, prefix: str, line: Line, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("checkpointmanager._etcd.connections.PING_SECONDS", 0.2)
    monkeypatch.setattr("checkpointmanager._etcd.connections.PONG_SECONDS", 0.5)
    owner = EtcdStore(three.endpoints[1:], prefix)
    opened = threading.Event()

    def release() -> None:
        until(lambda: line.watches)
        with stopped(three.members[0]):
            owner.close()
            assert opened.wait(LIMIT), "it still watches the member that hangs"

    def wait() -> None:
        store = EtcdStore(three.endpoints, prefix, timeout=2, lock_timeout=600)
        opened.set()
        store.close()

    run_together(release, wait)


def test_a_waiting_store_watches_no_member_without_a_leader_and_outlasts_an_outage(
    three: Cluster, prefix: str, line: Line
) -> None:
    owner = EtcdStore(three.endpoints, prefix, ttl=60)

    def fail_and_release() -> None:
        until(lambda: line.watches)
        looks = line.sent.count("Range")
        with stopped(*three.members[1:]):
            until(lambda: line.sent.count("Range") > looks + 10)  # more than one call makes in its time
        owner.close()

    def wait() -> None:
        EtcdStore(three.endpoints, prefix, timeout=0.5, lock_timeout=600).close()

    run_together(fail_and_release, wait)
