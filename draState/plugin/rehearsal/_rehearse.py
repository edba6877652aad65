"""Plays the acts one after the other, each on a new node with new processes."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from ._acts import ACTS
from ._node import NotReady
from ._stage import Failed, Stage

FIRST = "start"  # shows what pods have in common when nothing goes wrong
LOG_LINES = 30


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
