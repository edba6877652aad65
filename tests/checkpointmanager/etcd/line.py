"""The line between a store and the servers, on which requests and answers can be lost or delayed."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import Any

import grpc

from checkpointmanager._etcd.client import Call
from checkpointmanager._etcd.wire import RANGE, TXN, Method
from checkpointmanager.etcd import EtcdStore


class Broken(grpc.RpcError):
    """As gRPC raises it when no answer arrives."""

    def code(self) -> grpc.StatusCode:
        return grpc.StatusCode.DEADLINE_EXCEEDED

    def details(self) -> str:
        return "Deadline Exceeded"


class Full(Broken):
    """As etcd refuses a write when its database is full."""

    def code(self) -> grpc.StatusCode:
        return grpc.StatusCode.RESOURCE_EXHAUSTED

    def details(self) -> str:
        return "etcdserver: mvcc: database space exceeded"


class Fate(Enum):
    """What becomes of a change that gets no answer."""

    ANSWER_LOST = "its answer is lost"
    LOST = "it never arrives"
    LATE = "it arrives late"
    REFUSED = "it is refused"
    REFUSED_BUT_MADE = "it fills the database: it is made, and nevertheless refused"


class Line:
    """Replaces the one method that sends all requests of a store. Reads are disturbed only by lose_reads()."""

    def __init__(self, store: EtcdStore) -> None:
        self._client = store._client
        self._ask_one = store._client._ask_one
        self._disturb: Callable[[int], Fate | None] = lambda _: None
        self._late: list[Any] = []
        self.changes = 0  # that were sent
        self._loses_reads = False
        store._client._ask_one = self  # type: ignore[method-assign]

    def disturb(self, *fates: Fate | None, always: Fate | None = None, meanwhile: Callable[[], object] = int) -> None:
        """The next changes have these fates, one after the other, and all that follow have the fate `always`."""
        coming = list(fates)

        def disturbed(_: int) -> Fate | None:
            fate = coming.pop(0) if coming else always
            if fate:
                meanwhile()
            return fate

        self._disturb = disturbed

    def lose_reads(self) -> None:
        """From now on no read of a single name gets an answer."""
        self._loses_reads = True

    def mend(self) -> None:
        self._disturb = lambda _: None
        self._loses_reads = False

    def deliver(self) -> list[bool]:
        """Send the late requests now. Returns whether each was carried out."""
        arrived = [self._ask_one(Call(5), 0, TXN, request) for request in self._late]
        self._late.clear()
        return [reply.succeeded for reply in arrived]

    def __call__(self, call: Call, member: int, method: Method, request: Any) -> Any:
        if method is RANGE and self._loses_reads:
            raise Broken
        if method is not TXN or not request.compare:
            return self._ask_one(call, member, method, request)
        self.changes += 1
        fate = self._disturb(self.changes)
        if fate is None:
            return self._ask_one(call, member, method, request)
        if fate is Fate.REFUSED:
            raise Full
        if fate is Fate.LATE:
            self._late.append(request)
        if fate in (Fate.ANSWER_LOST, Fate.REFUSED_BUT_MADE):
            self._ask_one(call, member, method, request)
        raise Full if fate is Fate.REFUSED_BUT_MADE else Broken
