"""A node with the driver on it, and the pods that kubelet starts there. All checks of the rehearsal are made here.

A pod that starts must get its allocated device under a CDI id that the runtime finds. It must be the same as before if
the pod ran before, and nothing of it may belong to another running pod. When all pods have ended, nothing may be left.
"""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path
from typing import Any, TypeVar

import grpc.aio

from ... import PrepareResult
from ._apiserver import LocalApiServer
from ._kubelet import Claim, Kubelet, NothingInjected, injected, names
from ._node import LIMIT, Node, NotReady

R = TypeVar("R")
REQUEST = "device"
NEW = "new-pod"  # the UID of the pod with the new version
PATIENCE = 45.0  # seconds: kubelet's own limit for a call


class Failed(Exception):
    """Why an act failed, for people."""


class Pod:
    """A pod with one claim for one device."""

    def __init__(self, name: str, claim: Claim, device: str) -> None:
        self.name = name
        self.claim = claim
        self.device = device
        self.ids: list[str] = []  # the CDI ids of the last answer
        self.given: frozenset[str] = frozenset()  # what its containers would get, as of the last answer
        self.edits: frozenset[str] | None = None  # what its containers have, while it runs

    def __str__(self) -> str:
        return f"{self.name} ({self.device})"


class Stage:
    """A node of its own for a driver, given as module:Driver, which is started at once.

    `shared` has the names of edits that two pods may both have; if it is None, what the first two pods have in common.
    Raises NotReady if the driver does not start.
    """

    def __init__(self, driver: str, shared: frozenset[str] | None = None) -> None:
        self.cluster = LocalApiServer()  # whose outages and changes an act may cause
        self.node = Node(self.cluster.address, driver)
        self.events: list[str] = []  # what kubelet asked and what happened, for people
        self.started: dict[str, Pod] = {}  # pods that got devices, by name
        self.shared = shared
        self._pods: list[Pod] = []
        self._prepared: list[Pod] = []
        self._boots = 1
        try:
            self._process = self.node.start()
            self.devices = _until(lambda: _published(self.cluster), "two devices are needed, and were not published")
        except NotReady:
            self.close()
            raise
        (socket,) = os.listdir(self.node.registry)
        self.node.driver = self._socket = socket.removesuffix("-reg.sock")
        self._files = self._left()

    def pod(self, device: int) -> Pod:
        """A new pod, whose claim has this one of the two devices."""
        pool, device_name = self.devices[device]
        number = len(self._pods) + 1
        uid = f"{number:08d}-0000-4000-8000-000000000000"
        pod = Pod(str(number), Claim(uid, f"claim-{number}"), device_name)
        self.cluster.allocate(uid, pod.claim.name, [device_name], driver=self.node.driver, pool=pool, request=REQUEST)
        self._pods.append(pod)
        return pod

    def move(self, pod: Pod, device: int) -> None:
        """Allocate the pod's claim again, under the same UID. The pod that had the old device has ended."""
        pod.device = self.devices[device][1]
        pod.edits = None
        self.note(f"claim {pod.name} gets {pod.device}")
        self.cluster.reallocate(pod.claim.name, [pod.device])

    def runs(self, pod: Pod, killed: str = "") -> None:
        """Kubelet prepares the pod's claim until there is an answer; the driver may be killed meanwhile."""
        self._check_start(pod, self._ask("prepare", pod, lambda kubelet: kubelet.prepare(pod.claim), killed))

    def refused(self, pod: Pod) -> None:
        """Kubelet prepares the pod's claim, and must get an error."""
        answer = self._ask("prepare", pod, lambda kubelet: kubelet.prepare(pod.claim))
        if not answer.error:
            raise Failed(f"pod {pod} must wait, and was given {', '.join(names(answer.devices))}")
        self.events[-1] += ": refused"
        if pod not in self._prepared and pod.claim.uid in self.node.holdings():
            raise Failed(f"pod {pod} must wait, and holds its device")

    def ends(self, pod: Pod, killed: str = "") -> None:
        """Kubelet unprepares the pod's claim until there is an answer."""
        error = self._ask("unprepare", pod, lambda kubelet: kubelet.unprepare(pod.claim), killed)
        if error:
            raise Failed(f"pod {pod} cannot end: {error}")
        pod.edits = None
        if pod in self._prepared:
            self._prepared.remove(pod)

    def kill(self) -> None:
        """SIGKILL."""
        self.note("kill -9")
        self._process.kill()

    def start(self) -> None:
        """Start the driver, as the next process."""
        self.note("start")
        self._process = self.node.start()
        self._socket = self.node.driver

    def reboot(self) -> None:
        """The pods' containers are gone: they may get other things when they start again."""
        self.note("reboot")
        self._process.kill()
        self._boots += 1
        self.node.reboot(f"boot-{self._boots}")
        for pod in self._prepared:
            pod.edits = None

    def replace(self, meanwhile: Pod) -> None:
        """Start a new version beside the old one, end the old one, and let a pod start in between."""
        self.note(f"a new version stands by, prepare {meanwhile}, the old one ends")
        self._check_start(meanwhile, asyncio.run(self._replace(meanwhile)))

    async def _replace(self, meanwhile: Pod) -> PrepareResult:
        kubelet = Kubelet(self.node.registry, self.node.driver)
        watching = asyncio.create_task(kubelet.watch_registry())
        try:
            await asyncio.to_thread(_until, lambda: kubelet.registered == 1, "the old version is not registered")
            old, self._process = self._process, await asyncio.to_thread(self.node.start, pod=NEW)
            self._socket = f"{self.node.driver}-{NEW}"
            await asyncio.to_thread(_until, lambda: kubelet.registered == 2, "the new version is not registered")
            asking = asyncio.create_task(kubelet.prepare(meanwhile.claim, once=True))
            code = await asyncio.to_thread(old.terminate)
            if code:
                raise Failed(f"SIGTERM ended the old version with exit code {code}")
            return (await asking)[meanwhile.claim.uid]
        except grpc.aio.AioRpcError as error:
            raise Failed(f"the call met a closed door: {error.details()}") from error
        finally:
            watching.cancel()
            await kubelet.close()

    def note(self, event: str) -> None:
        """Add something that happens to what is shown."""
        self.events.append(event)

    def close_down(self) -> None:
        """All pods end, and nothing may be left."""
        for pod in [*self._prepared]:
            self.ends(pod)
        held = [pod.name for pod in self._pods if pod.claim.uid in self.node.holdings()]
        if held:
            raise Failed(f"all pods have ended, and claim {', '.join(held)} is still held")
        left = sorted(self._left() - self._files)
        if left:
            raise Failed(f"all pods have ended, and this is left on the node: {', '.join(left)}")

    def close(self) -> None:
        """End all processes and remove the node."""
        self.node.close()
        self.cluster.close()

    def __enter__(self) -> Stage:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _ask(self, operation: str, pod: Pod, say: Callable[[Kubelet], Awaitable[Any]], killed: str = "") -> Any:
        self.note(f"{operation} {pod}{', killed ' if killed else ''}{killed}")
        try:
            answer = asyncio.run(self._answer(say, killed))[pod.claim.uid]
        except grpc.aio.AioRpcError as error:
            raise Failed(f"{operation} {pod} got no answer: {error.details()}") from error
        if self.node.moment.read_text():
            raise Failed(f"the driver answered, and {killed.split()[1]} was never called")
        return answer

    async def _answer(self, say: Callable[[Kubelet], Awaitable[R]], killed: str) -> R:
        async with Kubelet(self.node.registry, self._socket, patience=PATIENCE) as kubelet:
            self.node.moment.write_text(killed)
            asking = asyncio.ensure_future(say(kubelet))
            while self._process.running and not asking.done():
                await asyncio.wait({asking}, timeout=0.01)
            if not self._process.running and not killed:
                asking.cancel()
                raise Failed("the driver's process has ended by itself")
            if not self._process.running:
                await asyncio.to_thread(self.start)
            return await asking

    def _check_start(self, pod: Pod, answer: PrepareResult) -> None:
        if answer.error:
            raise Failed(f"pod {pod} cannot start: {answer.error}")
        given = names(answer.devices)
        if given != (pod.device,):
            raise Failed(f"pod {pod} was given {', '.join(given) or 'nothing'}")
        try:
            pod.ids = injected(answer, REQUEST)
        except NothingInjected as error:
            raise Failed(f"pod {pod} would run without its device: {error}") from error
        edits = container_edits(self.node.cdi, pod.ids)
        if pod.edits is not None and edits != pod.edits:
            raise Failed(f"pod {pod} has {_listed(pod.edits - edits)}, and was now given {_listed(edits - pod.edits)}")
        pod.given = pod.edits = edits
        self.started[pod.name] = pod
        if pod not in self._prepared:
            self._prepared.append(pod)
        self._check_others(pod, edits)

    def _check_others(self, pod: Pod, edits: frozenset[str]) -> None:
        for other in [each for each in self._prepared if each is not pod]:
            both = edits & (other.edits or frozenset())
            if self.shared is None:
                self.shared = frozenset(map(_name, both))
            double = [edit for edit in both if _name(edit) not in self.shared]
            if double:
                raise Failed(f"pod {other} and pod {pod} both have {_listed(double)}")

    def _left(self) -> set[str]:
        folders = (self.node.host, self.node.cdi)
        return {str(path.relative_to(self.node.folder)) for folder in folders for path in folder.rglob("*")}


def container_edits(folder: Path, ids: Iterable[str]) -> frozenset[str]:
    """What a container gets for these CDI ids, as the runtime reads the files."""
    defined: dict[str, list[str]] = {}
    for path in sorted(folder.glob("*.json")):
        spec = json.loads(path.read_text())
        for device in spec["devices"]:
            edits = [*_flat(spec.get("containerEdits", {})), *_flat(device["containerEdits"])]
            if defined.setdefault(f"{spec['kind']}={device['name']}", edits) is not edits:
                raise Failed(f"CDI device {device['name']} is defined twice, so the runtime knows neither")
    unknown = [each for each in ids if each not in defined]
    if unknown:
        raise Failed(f"no CDI file defines {', '.join(unknown)}, so the runtime cannot start the container")
    return frozenset(line for each in ids for line in defined[each])


def _flat(edits: dict[str, Any]) -> list[str]:
    return [
        line if isinstance(line, str) else f"{kind} {json.dumps(line, sort_keys=True)}"
        for kind, lines in edits.items()
        for line in (lines if isinstance(lines, list) else [lines])
    ]


def _name(edit: str) -> str:
    """The name of a variable, or all of another edit: the value of a variable may differ between processes."""
    return edit.partition("=")[0]


def _listed(edits: Iterable[str]) -> str:
    return ", ".join(sorted(edits)) or "nothing"


def _published(cluster: LocalApiServer) -> list[tuple[str, str]]:
    """The pool and name of the first two devices."""
    found = [
        (each["spec"]["pool"]["name"], device["name"])
        for each in cluster.slices()
        for device in each["spec"].get("devices") or []
    ]
    return found[:2] if len(found) > 1 else []


def _until(condition: Callable[[], R], otherwise: str) -> R:
    end = time.monotonic() + LIMIT
    while not (found := condition()):
        if time.monotonic() > end:
            raise NotReady(otherwise)
        time.sleep(0.02)
    return found
