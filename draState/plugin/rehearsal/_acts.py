"""What happens to nodes, as acts: each is a sequence of events on a new stage, which checks what every pod gets.

The docstring of an act says in one line what happens, for those who watch.
"""

from __future__ import annotations

from collections.abc import Callable

from checkpointmanager.testing import damage as harm

from ._stage import Stage


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
