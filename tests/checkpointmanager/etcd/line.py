"""The line between the stores of a test and the servers: it shows the requests, and may lose or delay them.

This is the one place of the tests that replaces a private method: the one that sends a request to one member.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from enum import Enum
from typing import Any, NamedTuple

import grpc
import pytest

from checkpointmanager._etcd.client import Client, StoreCall

from ..processes import LIMIT

TRIES = 3  # that a call makes before its time is up


class Broken(grpc.RpcError):
    """As gRPC raises it when no answer arrives."""

    def __init__(
        self, code: grpc.StatusCode = grpc.StatusCode.DEADLINE_EXCEEDED, details: str = "Deadline Exceeded"
    ) -> None:
        super().__init__()
        self._code = code
        self._details = details

    def code(self) -> grpc.StatusCode:
        return self._code

    def details(self) -> str:
        return self._details


def full() -> Broken:
    """As etcd refuses a write when its database is full."""
    return Broken(grpc.StatusCode.RESOURCE_EXHAUSTED, "etcdserver: mvcc: database space exceeded")


class Fate(Enum):
    """What happens to a change that gets no answer."""

    ANSWER_LOST = "its answer is lost"
    LOST = "it never arrives"
    LATE = "it arrives late"
    REFUSED = "it is refused"
    REFUSED_BUT_MADE = "it fills the database: it is made, and nevertheless refused"


class Request(NamedTuple):
    """One request to one member."""

    name: str  # of its method: "Range", "Txn", "LeaseKeepAlive" …
    is_change: bool
    token: str
    call: StoreCall
    send_within: Callable[[StoreCall], Any]

    def send(self) -> Any:
        return self.send_within(self.call)

    def send_late(self) -> Any:
        return self.send_within(StoreCall(LIMIT))

    def end_of_time(self) -> Broken:
        """No answer, and the time of the call is up: without waiting for it."""
        self.call._end = 0.0
        return Broken()


class Line:
    """Carries the requests of all stores as `carry` says, except those that `carry` itself makes."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.sent: list[str] = []  # the names of all requests
        self.watches: list[float] = []  # the seconds of all watches of a lock that were begun
        self.carry: Callable[[Request], Any] = Request.send
        self._late: list[Request] = []
        self._loses_reads = False
        self._carrying = threading.local()
        monkeypatch.setattr(Client, "_ask_one", self._between(Client._ask_one))
        monkeypatch.setattr(Client, "watching", self._watching(Client.watching))

    def disturb(
        self, *fates: Fate | None, until_time_is_up: Fate | None = None, meanwhile: Callable[[], object] = int
    ) -> None:
        """The next changes have these fates, one after the other. All that follow have the fate `until_time_is_up`, and
        the time of a call is up after a few tries.
        """
        coming = list(fates)
        tries = 0

        def carry(request: Request) -> Any:
            nonlocal tries
            if request.name == "Range" and self._loses_reads:
                raise request.end_of_time()
            if not request.is_change:
                return request.send()
            if coming:
                fate = coming.pop(0)
            else:
                fate = until_time_is_up
                tries += 1
            if fate:
                meanwhile()
            if fate and tries and tries % TRIES == 0:
                request.end_of_time()
            return self._suffer(fate, request)

        self.carry = carry

    def lose_reads(self) -> None:
        """From now on no read of a single name gets an answer."""
        self._loses_reads = True

    def mend(self) -> None:
        self.carry = Request.send
        self._loses_reads = False

    def deliver(self) -> list[bool]:
        """Send the late requests now. Returns whether each was carried out."""
        late, self._late = self._late, []
        return [request.send_late().succeeded for request in late]

    def _suffer(self, fate: Fate | None, request: Request) -> Any:
        if fate is None:
            return request.send()
        if fate is Fate.LATE:
            self._late.append(request)
        if fate in (Fate.ANSWER_LOST, Fate.REFUSED_BUT_MADE):
            request.send_late()
        raise full() if fate in (Fate.REFUSED, Fate.REFUSED_BUT_MADE) else Broken()

    def _between(self, ask_one: Callable[..., Any]) -> Callable[..., Any]:
        def between(client: Client, call: StoreCall, *where_and_what: Any) -> Any:
            _member, method, message, token = where_and_what

            def send_within(time: StoreCall) -> Any:
                return ask_one(client, time, *where_and_what)

            if getattr(self._carrying, "now", False):
                return send_within(call)
            name = method.path.rpartition("/")[2]
            self.sent.append(name)
            is_change = name == "Txn" and bool(message.compare)
            self._carrying.now = True
            try:
                return self.carry(Request(name, is_change, token, call, send_within))
            finally:
                self._carrying.now = False

        return between

    def _watching(self, watching: Callable[..., Any]) -> Callable[..., Any]:
        def watch(client: Client, request: Any, seconds: float) -> Any:
            self.watches.append(seconds)
            return watching(client, request, seconds)

        return watch
