"""A driver that records its calls, and fails in every way that a driver can."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from draState import ClaimRef, Device, PrepareResult

Hook = Callable[[str], object]
T = TypeVar("T")
LIMIT = 60.0  # seconds; only a deadlock takes that long


class Died(BaseException):
    """The process dies at this moment: no error handling may catch this."""


class RecordingDriver:
    """Outlives the agent, as hardware does: `prepared` is what it holds, even if the agent has forgotten it.

    calls           the operation and the claim UIDs of each call, in order
    refs            all references to a claim that it received, by UID
    errors          claim UID -> the error that it returns
    silent          claims for which it returns no answer
    raises          operation -> what the whole call raises
    before, after   called with the operation inside each call, around the work: to look, to wait or to die
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.calls: list[tuple[str, tuple[str, ...]]] = []
        self.refs: dict[str, ClaimRef] = {}
        self.prepared: set[str] = set()
        self.devices: dict[str, tuple[Device, ...]] = {}  # claim UID -> devices to return instead of the usual one
        self.errors: dict[str, str] = {}
        self.silent: set[str] = set()
        self.raises: dict[str, Exception] = {}
        self.before: Hook = lambda _: None
        self.after: Hook = lambda _: None

    def prepare(self, claims: Sequence[ClaimRef]) -> Mapping[str, PrepareResult]:
        self._enter("prepare", claims)
        answers = {}
        for claim in claims:
            if error := self.errors.get(claim.uid):
                answers[claim.uid] = PrepareResult(error=error)
            elif claim.uid not in self.silent:
                self.prepared.add(claim.uid)
                answers[claim.uid] = PrepareResult(self.devices.get(claim.uid, (self.device_of(claim.uid),)))
        self.after("prepare")
        return answers

    def unprepare(self, claims: Sequence[ClaimRef]) -> Mapping[str, str]:
        self._enter("unprepare", claims)
        answers = {}
        for claim in claims:
            if claim.uid not in self.silent:
                answers[claim.uid] = self.errors.get(claim.uid, "")
                if not answers[claim.uid]:
                    self.prepared.discard(claim.uid)
        self.after("unprepare")
        return answers

    def device_of(self, uid: str) -> Device:
        """The usual answer: one device for all requests of the claim."""
        return Device("pool", f"dev-{uid}", cdi_device_ids=(f"{self.name}/device=dev-{uid}",))

    def calls_of(self, operation: str) -> list[tuple[str, ...]]:
        return [uids for called, uids in self.calls if called == operation]

    def forget_calls(self) -> None:
        self.calls.clear()

    def _enter(self, operation: str, claims: Sequence[ClaimRef]) -> None:
        self.calls.append((operation, tuple(sorted(claim.uid for claim in claims))))
        self.refs.update({claim.uid: claim for claim in claims})
        self.before(operation)
        if error := self.raises.get(operation):
            raise error


class Doorstop:
    """Blocks a calling thread until `let_go`; `wait_until_reached` returns when one has arrived."""

    def __init__(self) -> None:
        self.reached = threading.Event()
        self.released = threading.Event()

    def __call__(self, *_: object) -> None:
        self.reached.set()
        assert self.released.wait(LIMIT), "let_go was not called"

    def wait_until_reached(self) -> None:
        assert self.reached.wait(LIMIT), "no thread arrived"

    def let_go(self) -> None:
        self.released.set()


def race(*contestants: Callable[[], T]) -> list[T]:
    """Run all at the same moment, as far as threads allow; returns their results, or raises what one of them raises."""
    start = threading.Barrier(len(contestants))

    def run(contestant: Callable[[], T]) -> T:
        start.wait(LIMIT)
        return contestant()

    with ThreadPoolExecutor(len(contestants)) as pool:
        return [running.result(LIMIT) for running in [pool.submit(run, contestant) for contestant in contestants]]
