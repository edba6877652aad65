"""What a driver chooses on the node is durable before it sets anything up, and chosen once."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from checkpointmanager.testing import damage
from draState import ClaimPhase, ClaimRef, DriverClaim, OpaqueConfig, PrepareResult

from .drivers import Died
from .driverside import Choosing, DriverNode, names


class ChoosingNode(DriverNode):
    hooks = Choosing


@pytest.fixture
def node(directory: Path) -> Iterator[DriverNode]:
    Choosing.given = []
    node = ChoosingNode(directory)
    yield node
    node.stop()


@pytest.fixture
def real_node(real_directory: Path) -> Iterator[DriverNode]:
    """On the disk, for threads: pyfakefs mixes up their calls, on Python 3.14 often."""
    Choosing.given = []
    node = ChoosingNode(real_directory)
    yield node
    node.stop()


def chosen(node: DriverNode, uid: str) -> Any:
    claim = node.cache.get(uid)
    return claim and claim.state.driver_states[node.hardware.driver].driver_data


def test_each_choice_sees_the_earlier_ones(node: DriverNode) -> None:
    for n, uid in enumerate("abc"):
        names(node.prepare(node.server.allocate(uid, f"gpu-{n}")))
    assert [chosen(node, uid) for uid in "abc"] == [{"vf": 0}, {"vf": 1}, {"vf": 2}]
    node.unprepare(node.server.claims["b"].ref)
    assert node.hardware.torn_down[0].driver_data == {"vf": 1}
    names(node.prepare(node.server.allocate("d", "gpu-1")))
    assert chosen(node, "d") == {"vf": 1}, "free again"


def test_a_choice_that_only_damaged_bytes_show_is_not_made_again(node: DriverNode) -> None:
    names(node.prepare(node.server.allocate("a", "gpu-0")))
    node.stop()
    (node.directory / ".previous-a").unlink()
    file = node.directory / "a.json"
    file.write_bytes(file.read_bytes().replace(b'"written":"20', b'"written":"99'))
    node.start()

    names(node.prepare(node.server.allocate("b", "gpu-1")))

    assert node.cache.report().unknown.keys() == {"a"}
    assert chosen(node, "b") == {"vf": 1}


@pytest.mark.parametrize("boot", ["boot-1", "boot-2"])
def test_a_kill_in_set_up_loses_no_choice(node: DriverNode, boot: str) -> None:
    ref = node.server.allocate("a", "gpu-0")
    node.hardware.failing, node.hardware.error = {"set_up"}, Died()
    with pytest.raises(Died):
        node.prepare(ref)
    node.restart(boot)
    assert (node.phase("a"), chosen(node, "a")) == (ClaimPhase.PREPARING, {"vf": 0})
    names(node.prepare(node.server.allocate("b", "gpu-1")))
    assert chosen(node, "b") == {"vf": 1}, "a kill does not free what was chosen"

    names(node.prepare(ref))

    assert Choosing.given == [{"vf": 0}, {"vf": 1}, {"vf": 0}]
    assert ("choose", "a") not in node.hardware.calls, "once per allocation"


def test_a_kill_in_set_up_gives_tear_down_the_choice(directory: Path) -> None:
    node = ChoosingNode(directory, unfinished="tear_down")
    node.hardware.failing, node.hardware.error = {"set_up"}, Died()
    with pytest.raises(Died):
        node.prepare(node.server.allocate("a", "gpu-0"))
    node.restart()
    assert [claim.driver_data for claim in node.hardware.torn_down] == [{"vf": 0}]
    node.stop()


def test_a_record_that_was_healed_keeps_its_choice(node: DriverNode) -> None:
    names(node.prepare(node.server.allocate("a", "gpu-0")))
    ref = node.server.allocate("b", "gpu-1")
    names(node.prepare(ref))
    node.server.claims["b"] = replace(node.server.claims["b"], pods={"second": "pod-2"})
    node.prepare(ref)  # so that the previous generation has the result of set_up
    node.stop()
    damage.empty(node.directory, "b")
    node.start(shows_traces=False)
    node.unprepare(node.server.claims["a"].ref)
    node.preparer.review.heal()

    names(node.prepare(ref))

    assert Choosing.given[-1] == {"vf": 1}, "its pod uses it"


def test_a_new_allocation_is_a_new_choice(node: DriverNode) -> None:
    names(node.prepare(node.server.allocate("a", "gpu-0")))
    ref = node.server.allocate("b", "gpu-1")
    names(node.prepare(ref))
    node.unprepare(node.server.claims["a"].ref)
    node.server.allocate("b", "gpu-1", configs=(OpaqueConfig({"mode": "fast"}),))
    names(node.prepare(ref))
    assert chosen(node, "b") == {"vf": 0}
    assert node.hardware.torn_down[-1].driver_data == {"vf": 1}


def test_a_choice_that_fails_leaves_no_trace(node: DriverNode) -> None:
    node.hardware.failing = {"choose"}
    assert node.prepare(node.server.allocate("a", "gpu-0")).error == "the hardware is broken"
    assert (len(node.cache), node.hardware.holdings()) == (0, {})


def test_many_threads_never_choose_at_the_same_time(real_node: DriverNode, monkeypatch: pytest.MonkeyPatch) -> None:
    inside = threading.Barrier(2)  # the first one waits a moment for another, which must not come
    choose = Choosing.choose

    def choosing(hooks: Choosing, claim: DriverClaim, held: Mapping[str, DriverClaim]) -> Any:
        with suppress(threading.BrokenBarrierError):
            inside.wait(0.3)
            pytest.fail("two at once")
        return choose(hooks, claim, held)

    monkeypatch.setattr(Choosing, "choose", choosing)
    refs = [real_node.server.allocate(f"u{n}", f"gpu-{n}") for n in range(16)]
    answers: list[PrepareResult] = []

    def prepare(ref: ClaimRef) -> None:
        answers.append(real_node.prepare(ref))

    threads = [threading.Thread(target=prepare, args=(ref,)) for ref in refs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(answer.devices for answer in answers)
    assert sorted(chosen(real_node, ref.uid)["vf"] for ref in refs) == list(range(16))
