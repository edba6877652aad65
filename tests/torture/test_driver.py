"""kill -9 between any two steps of a driver: no device or choice goes out twice, leaks, or is answered too early."""

from __future__ import annotations

import os
import random
import signal
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from ..checkpointmanager.processes import Child
from ..checkpointmanager.programs import die_before_call
from ..draState.driverside import Choosing, DriverNode, TwoDrivers, held_twice, leaks, names, not_set_up
from ..long import times

KILLS = times(8, 500)
MOST_CALLS = 400  # of the story
STEP = times(16, 1)  # in CI every sixteenth of them
UIDS = ("a", "b", "c")
# Kubelet's requests, in order: prepare a claim with these devices, or unprepare it.
STORY: list[tuple[str, tuple[str, ...]]] = [
    ("a", ("gpu-0", "gpu-1")),
    ("b", ("gpu-2",)),
    ("a", ("gpu-3",)),  # allocated again, under the same UID
    ("b", ()),
    ("c", ("gpu-2", "gpu-0")),
    ("a", ()),
]


class ChoosingNode(DriverNode):
    """Its driver chooses something for each claim, which a kill must not lose or give to two claims."""

    hooks = Choosing


def chosen_twice(node: DriverNode) -> list[int]:
    data = [claim.state.driver_states[node.hardware.driver].driver_data for claim in node.cache]
    chosen = [each["vf"] for each in data]
    return [vf for vf in chosen if chosen.count(vf) > 1]


def take(node: DriverNode, say: Callable[[str], object], steps: list[tuple[str, tuple[str, ...]]]) -> None:
    """Take the steps, and report what begins and what was acknowledged."""
    for uid, devices in steps:
        say(f"begin {uid} {','.join(devices)}\n")
        if devices:
            error = node.prepare(node.server.allocate(uid, *devices)).error
        else:
            error = node.unprepare(node.server.allocate(uid))
        assert not error, error
        say(f"done {uid} {','.join(devices)}\n")


def live(directory: Path, say: int, *, number: int, steps: list[tuple[str, tuple[str, ...]]], unfinished: str) -> None:
    """Start, restore, and go through the steps, until the call at which to die. Every call counts."""

    def work() -> None:
        node = ChoosingNode(directory, unfinished=unfinished)
        take(node, lambda text: os.write(say, text.encode()), steps)
        node.stop()

    die_before_call(number, directory.parent, work)


def killed(directory: Path, number: int, steps: list[tuple[str, tuple[str, ...]]], unfinished: str) -> list[list[str]]:
    """The output of a process killed at its n-th call; with "ended" if it finished before that."""
    program = partial(live, directory, number=number, steps=steps, unfinished=unfinished)
    with Child(program) as child:
        ended = child.wait()
        said = [line.split(" ") for line in child.read_to_end().decode().splitlines()]
    assert ended in (0, -signal.SIGKILL)
    return [*said, ["ended"]] if ended == 0 else said


class Word:
    """What the driver has acknowledged, over all its lives. A claim with a later request is open."""

    def __init__(self) -> None:
        self.devices: dict[str, list[str]] = {}
        self.open: set[str] = set()

    def hear(self, said: list[list[str]]) -> None:
        for what, uid, listed in [line for line in said if line != ["ended"]]:
            if what == "begin":
                self.open.add(uid)
            else:
                self.open.discard(uid)
                self.devices[uid] = sorted(filter(None, listed.split(",")))


def check(directory: Path, word: Word, unfinished: str) -> DriverNode:
    """Whatever was killed, the next process finds a correct state."""
    node = ChoosingNode(directory, unfinished=unfinished)
    assert leaks(node.hardware, node.cache) == []
    assert held_twice(node.cache) == []
    assert not_set_up(node.hardware, node.cache) == []
    assert chosen_twice(node) == []
    assert all(claim.driver_data for claim in node.hardware.torn_down), "tear_down gets what was chosen"
    for uid in set(UIDS) - word.open:
        claim = node.cache.get(uid)
        held = sorted(device for _, _, device in claim.state.devices()) if claim else []
        assert held == word.devices.get(uid, []), uid
        assert not claim or claim.prepared, f"{uid} was acknowledged, and would not be answered from memory"
    return node


@pytest.mark.parametrize("unfinished", ["keep", "tear_down"])
def test_a_kill_before_any_system_call_of_the_story(tmp_path: Path, unfinished: str) -> None:
    for number in range(1 + len(unfinished) % STEP, MOST_CALLS, STEP):
        directory = tmp_path / str(number) / "claims"
        said = killed(directory, number, STORY, unfinished)
        word = Word()
        word.hear(said)
        node = check(directory, word, unfinished)
        done = sum(line[0] == "done" for line in said)
        take(node, lambda _: None, STORY[done:])
        assert node.hardware.holdings() == {"gpu-2": "c", "gpu-0": "c"}
        take(node, lambda _: None, [("c", ())])
        assert (len(node.cache), node.hardware.holdings()) == (0, {})
        node.stop()
        if said[-1:] == [["ended"]]:
            assert number > 60, "the story is longer than that"
            return
    pytest.fail("the story never came to its end")


@pytest.mark.timeout(300 + KILLS)
def test_a_driver_killed_again_and_again_keeps_its_word(tmp_path: Path) -> None:
    dice = random.Random(5)
    directory = tmp_path / "claims"
    word = Word()
    kills = 0
    for _ in range(KILLS):
        unfinished = dice.choice(["keep", "tear_down"])
        free = [f"gpu-{n}" for n in range(8)]
        dice.shuffle(free)
        steps = [(uid, tuple(free.pop() for _ in range(dice.randrange(3)))) for uid in dice.sample(UIDS, 3)]
        steps = [(uid, ()) for uid in UIDS] + steps if dice.random() < 0.5 else [(uid, ()) for uid, _ in steps] + steps
        said = killed(directory, dice.randrange(1, 120), steps, unfinished)
        kills += said[-1:] != [["ended"]]
        word.hear(said)
        check(directory, word, unfinished).stop()
    assert kills > KILLS // 2


# Requests to two drivers that share a cache: prepare a claim with a device of this driver, or "" to unprepare it.
SHARED_STORY = [
    ("gpu", "a", "gpu-0"),
    ("nic", "a", "eth-0"),
    ("gpu", "a", ""),
    ("gpu", "b", "gpu-0"),
    ("nic", "b", "eth-1"),
    ("nic", "a", ""),
    ("nic", "b", ""),
]
SHARED_END = {"gpu": {"gpu-0": "b"}, "nic": {}}


def take_shared(two: TwoDrivers, say: Callable[[str], object], steps: list[tuple[str, str, str]]) -> None:
    for name, uid, device in steps:
        driver = two.gpu if name == "gpu" else two.nic
        ref = driver.server.allocate(uid, *filter(None, [device]))
        if device:
            assert names(driver.prepare(ref)) == [device]
        else:
            assert driver.unprepare(ref) == ""
        say("done\n")


def live_shared(directory: Path, say: int, *, number: int) -> None:
    def work() -> None:
        two = TwoDrivers(directory)
        take_shared(two, lambda text: os.write(say, text.encode()), SHARED_STORY)
        two.stop()

    die_before_call(number, directory.parent, work)


def test_a_kill_before_any_system_call_of_two_drivers_that_share_a_cache(tmp_path: Path) -> None:
    for number in range(1, MOST_CALLS, STEP):
        directory = tmp_path / str(number) / "claims"
        with Child(partial(live_shared, directory, number=number)) as child:
            ended = child.wait() == 0
            done = child.read_to_end().decode().count("done")
        two = TwoDrivers(directory)
        for driver in (two.gpu, two.nic):
            assert leaks(driver.hardware, two.cache) == []
        assert held_twice(two.cache) == []
        acknowledged = {(name, uid): device for name, uid, device in SHARED_STORY[:done]}
        open_now = SHARED_STORY[done][:2] if done < len(SHARED_STORY) else None
        for (name, uid), device in acknowledged.items():
            if (name, uid) != open_now:
                held = two.cache.holders(f"{name}.example.com", None, device) if device else {uid}
                assert uid in held, f"the {name} of {uid} was acknowledged, and is gone"
        take_shared(two, lambda _: None, SHARED_STORY[done:])
        assert {"gpu": two.gpu.hardware.holdings(), "nic": two.nic.hardware.holdings()} == SHARED_END
        two.stop()
        if ended:
            assert number > 60, "the story is longer than that"
            return
    pytest.fail("the story never came to its end")
