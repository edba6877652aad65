"""What happens to nodes, as acts: each is a sequence of events on a stage, which checks what every pod gets.

The docstring of an act says in one line what happens, for those who watch. `rehearse` plays acts one after the other,
each on a new node with new processes.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from checkpointmanager.testing import damage as harm

from ._node import NotReady
from ._stage import Failed, Stage

FIRST = "start"  # shows what pods have in common when nothing goes wrong
LOG_LINES = 30


def start(stage: Stage) -> None:
    """Pods come and go, and kubelet repeats its calls."""
    one, two = stage.pod(0), stage.pod(1)
    stage.runs(one)
    stage.runs(two)
    stage.runs(one)
    stage.ends(one)
    stage.ends(one)
    stage.runs(stage.pod(0))


def kill(stage: Stage) -> None:
    """The driver is killed after its answers, and started again."""
    one, two = stage.pod(0), stage.pod(1)
    stage.runs(one)
    stage.runs(two)
    stage.kill()
    stage.start()
    stage.runs(one)
    stage.ends(two)
    stage.runs(stage.pod(1))


def interrupt(stage: Stage) -> None:
    """The driver is killed before and after each set_up and tear_down, before it can answer."""
    stage.runs(stage.pod(1))
    for moment in ("before", "after"):
        pod = stage.pod(0)
        stage.runs(pod, killed=f"{moment} set_up")
        stage.ends(pod, killed=f"{moment} tear_down")


def reboot(stage: Stage) -> None:
    """The node reboots: hardware and CDI files are as new, and kubelet asks in another order."""
    one, two = stage.pod(0), stage.pod(1)
    stage.runs(one)
    stage.runs(two)
    stage.reboot()
    stage.start()
    stage.runs(two)
    stage.ends(one)
    stage.runs(stage.pod(0))


def outage(stage: Stage) -> None:
    """The API server cannot be reached while the driver restarts: known pods start, new ones wait."""
    one, two = stage.pod(0), stage.pod(1)
    stage.runs(one)
    stage.note("the API server goes down")
    stage.cluster.go_down()
    stage.kill()
    stage.start()
    stage.runs(one)
    stage.refused(two)
    stage.note("it is back")
    stage.cluster.listen()
    stage.runs(two)


def hang(stage: Stage) -> None:
    """The API server accepts requests and does not answer: new pods wait, and pods can end."""
    one, two = stage.pod(0), stage.pod(1)
    stage.runs(one)
    stage.note("the API server hangs")
    stage.cluster.delay = 60.0
    stage.refused(two)
    stage.ends(one)
    stage.note("it answers")
    stage.cluster.delay = 0.0
    stage.runs(two)


def damage(stage: Stage) -> None:
    """The disk loses half of a claim's file: nobody else gets its device, and the pod can start again."""
    one, two = stage.pod(0), stage.pod(1)
    stage.runs(one)
    stage.runs(two)
    stage.kill()
    stage.note(f"the file of claim {one.name} is cut")
    harm.truncate(stage.node.state, one.claim.uid)
    stage.start()
    stage.runs(two)
    stage.refused(stage.pod(0))
    stage.runs(one)


def cdi(stage: Stage) -> None:
    """Somebody deletes the CDI files: they are back when kubelet asks again."""
    one = stage.pod(0)
    stage.runs(one)
    stage.note("the CDI files are deleted")
    for path in stage.node.cdi.iterdir():
        path.unlink()
    stage.runs(one)


def reallocate(stage: Stage) -> None:
    """A claim gets another device while kubelet or the driver is down: its pod gets the new one."""
    one = stage.pod(0)
    stage.runs(one)
    stage.move(one, 1)
    stage.runs(one)
    stage.kill()
    stage.move(one, 0)
    stage.start()
    stage.runs(one)
    stage.runs(stage.pod(1))


def late(stage: Stage) -> None:
    """A prepare arrives after the claim was deleted, and after the pod has ended: nothing is set up."""
    one, two = stage.pod(0), stage.pod(1)
    stage.runs(one)
    stage.note(f"claim {one.name} is deleted")
    stage.cluster.forget_claim(one.claim.name)
    stage.refused(one)
    stage.ends(one)
    stage.runs(two)
    stage.ends(two)
    stage.note(f"claim {two.name} is reserved for nobody")
    stage.cluster.reserve(two.claim.name, [])
    stage.refused(two)


def update(stage: Stage) -> None:
    """A new version stands by, the old one ends, and a call in between is answered."""
    one, two = stage.pod(0), stage.pod(1)
    stage.runs(one)
    stage.replace(meanwhile=two)
    stage.runs(one)


ACTS: dict[str, Callable[[Stage], None]] = {
    act.__name__: act for act in (start, kill, interrupt, reboot, outage, hang, damage, cdi, reallocate, late, update)
}
"""All acts by name, in the order in which they are played."""


@dataclass(frozen=True, slots=True)
class Given:
    """What a pod would have got."""

    device: str  # its name
    cdi_ids: tuple[str, ...]  # what kubelet passes to the container runtime
    edits: tuple[str, ...]  # what the runtime then does to its containers


@dataclass(frozen=True, slots=True)
class Result:
    """The outcome of one act."""

    act: str  # its name
    what: str  # what happens in it
    events: tuple[str, ...]  # what kubelet asked and what happened, in order
    pods: dict[str, Given]  # by the name of the pod
    failure: str = ""  # why it failed, "" if it passed
    log: tuple[str, ...] = field(default=(), repr=False)  # the driver's last warnings and errors, if it failed
    seconds: float = 0.0  # how long it took

    @property
    def passed(self) -> bool:
        """True if every pod got what it should."""
        return not self.failure


def rehearse(driver: str, acts: Sequence[str] = tuple(ACTS)) -> Iterator[Result]:
    """Play these acts for a driver, given as module:Driver. Raises NotReady if it does not start at all."""
    shared: frozenset[str] | None = None
    for name in dict.fromkeys([FIRST, *acts]):
        began = time.monotonic()
        with Stage(driver, shared) as stage:
            result = _play(name, stage, began)
        shared = stage.shared
        yield result


def _play(name: str, stage: Stage, began: float) -> Result:
    failure = ""
    try:
        ACTS[name](stage)
        stage.close_down()
    except (Failed, NotReady) as failed:
        failure = str(failed).splitlines()[0]
    return Result(
        name,
        (ACTS[name].__doc__ or "").strip(),
        tuple(stage.events),
        {pod.name: Given(pod.device, tuple(pod.ids), tuple(sorted(pod.given))) for pod in stage.started.values()},
        failure,
        tuple(_complaints(stage.node.log)[-LOG_LINES:]) if failure else (),
        time.monotonic() - began,
    )


def _complaints(log: str) -> list[str]:
    return [line for line in log.splitlines() if " INFO " not in line]
