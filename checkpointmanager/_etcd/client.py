"""Calls to the servers: several members, a limit on every wait, and no answer taken for granted.

A call goes to the member that answered last. If that fails it goes to the next one, until one answers or the time is
up. So a request may be carried out more than once. The sender of a request that changes something makes sure, by what
the request compares, that only the first time counts (see attempts.py).
"""

from __future__ import annotations

import errno
import logging
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import grpc

from .._errors import CheckpointError
from .connections import Connections, Credentials, addresses
from .errors import LoginNeeded, NoAnswer, Refused, Unanswered, WentBack, failure_of
from .wire import AUTHENTICATE, LEASE_KEEP_ALIVE, RANGE, TXN, WATCH, Method

TRIES = 3  # a member that hangs takes at most a third of the time
MAX_LOGINS = 3  # per call: the token has expired, then the next member was restarted, and then users were changed
FIRST_PAUSE, LONGEST_PAUSE = 0.02, 0.5  # seconds, after all members have failed in turn

logger = logging.getLogger("checkpointmanager")


class StoreCall:
    """One call of the store: how long it may still take, and what is known about the change that it sent."""

    def __init__(self, seconds: float, spent: float = 0.0) -> None:
        self.seconds = seconds
        self.in_doubt = False  # the change may have been made
        self.unanswered = False  # an answer is missing, so an attempt may still be on its way
        self._end = time.monotonic() + seconds - spent

    def left(self) -> float:
        return max(0.0, self._end - time.monotonic())

    def part(self) -> StoreCall:
        """The same time, for another change."""
        return StoreCall(self.seconds, self.seconds - self.left())

    def share(self) -> float:
        """The time that one member may take."""
        return min(self.left(), max(self.seconds / TRIES, 0.1))

    @contextmanager
    def holding(self, lock: threading.RLock) -> Iterator[None]:
        """Hold a lock inside the block. Raises NoAnswer if it does not become free in time."""
        if not lock.acquire(timeout=self.left()):
            raise NoAnswer(errno.ETIMEDOUT, f"other calls took all of the {self.seconds:g} s")
        try:
            yield
        finally:
            lock.release()


class Progress:
    """The cluster that answers and the highest revision that it showed. What was lost once stays lost.

    A revision never goes down while a cluster keeps what it acknowledged, and every answer states one. Only answers to
    reads and transactions are judged: they come from a majority, while those about leases may come from a member that
    is behind.
    """

    def __init__(self) -> None:
        self._lock = threading.RLock()  # a signal handler may run while its thread holds it
        self._cluster = 0
        self._why = ""  # state was lost
        self.revision = 0

    def before(self) -> int:
        """What the answer to a request that is sent now shows at least. Raises WentBack if state was lost earlier."""
        if self._why:
            raise WentBack(errno.ESTALE, self._why)
        return self.revision

    def after(self, least: int, header: Any) -> None:
        """Judge an answer. Raises WentBack if it does not follow from the answers before."""
        with self._lock:
            self._cluster = self._cluster or header.cluster_id
            self.revision = max(self.revision, header.revision)
        if header.cluster_id != self._cluster:
            self.lost(f"cluster {header.cluster_id:x} answers instead of {self._cluster:x}")
        if header.revision < least:
            self.lost(f"etcd went back from revision {least} to {header.revision}")

    def lost(self, why: str) -> None:
        self._why = self._why or f"{why}, so it lost acknowledged changes"
        raise WentBack(errno.ESTALE, self._why)


class Client:
    """Talks to one of several members of a cluster. Thread-safe."""

    def __init__(self, endpoints: Sequence[str], credentials: Credentials) -> None:
        self.addresses, self._tls = addresses(endpoints, credentials)
        self._credentials = credentials
        self._version = credentials.version()  # of the certificates that the connections use
        self._connections = Connections(self.addresses, credentials, tls=self._tls)
        self._current = 0  # the member that is asked first
        self._token: str | None = None if credentials.user else ""  # None: not logged in yet
        self._logging_in = threading.RLock()
        self.progress = Progress()

    def ask(self, call: StoreCall, method: Method, request: Any, *, changing: bool = False) -> Any:
        """The answer of some member. Raises Refused if it is no, NoAnswer if there is none in time, WentBack if it
        comes from an older state.

        With changing=True the call is in doubt as soon as an answer is missing, or made the change in an older state.
        """
        if method not in (RANGE, TXN):
            return self._ask(call, method, request)
        least = self.progress.before()
        reply = self._ask(call, method, request, changing=changing)
        try:
            self.progress.after(least, reply.header)
        except WentBack:
            call.in_doubt = call.in_doubt or (changing and reply.succeeded)
            raise
        return reply

    @contextmanager
    def watching(self, request: Any, seconds: float) -> Iterator[Iterator[Any]]:
        """The answers of a watch, for `seconds` at most. Raises grpc.RpcError when it breaks or the time is up.

        It also breaks when the member loses touch with the others, or hangs: otherwise it would wait in vain.
        """
        done = threading.Event()

        def requests() -> Iterator[Any]:
            yield request
            done.wait(seconds)  # the stream ends when this does

        member = self._current
        metadata = (*_metadata(self._token), ("hasleader", "true"))
        replies = self._connections.stub(member, WATCH)(requests(), timeout=seconds, metadata=metadata)
        try:
            yield replies
        except grpc.RpcError:
            self._go_on_from(member)
            raise
        finally:
            done.set()
            replies.cancel()

    def close(self) -> None:
        self._connections.close()

    def _ask(self, call: StoreCall, method: Method, request: Any, *, changing: bool = False) -> Any:
        if not call.left():  # so nothing is sent, and nothing is in doubt
            raise NoAnswer(
                errno.ETIMEDOUT, f"no answer within {call.seconds:g} s, earlier requests of this call took them"
            )
        failures = logins = 0
        while True:
            member = self._current
            token = None
            try:
                token = self._log_in(call, member)
                return self._ask_one(call, member, method, request, token)
            except grpc.RpcError as error:
                failure = failure_of(error)
            if isinstance(failure, LoginNeeded) and self._credentials.user and logins < MAX_LOGINS:
                logins += 1
                if self._token == token:  # else another thread has logged in again already
                    self._token = None
                continue
            if isinstance(failure, Refused):
                raise failure
            if changing and token is not None and isinstance(failure, Unanswered):  # else it was the login
                call.in_doubt = call.unanswered = True
            self._use_new_certificates()
            self._go_on_from(member)
            failures += 1
            if failures % len(self.addresses) == 0:
                pause = min(FIRST_PAUSE * 2 ** (failures // len(self.addresses)), LONGEST_PAUSE)
                time.sleep(min(pause, call.left()))
            if not call.left():
                why = f"no answer within {call.seconds:g} s, the last error was: {failure.strerror}"
                raise NoAnswer(failure.errno, why)

    def _ask_one(self, call: StoreCall, member: int, method: Method, request: Any, token: str) -> Any:
        stub = self._connections.stub(member, method)
        if method is not LEASE_KEEP_ALIVE:
            return stub(request, timeout=call.share(), metadata=_metadata(token))
        # A stream in etcd's API; we want one answer to one question.
        for reply in stub(iter([request]), timeout=call.share(), metadata=_metadata(token)):
            return reply
        raise _StreamEnded

    def _use_new_certificates(self) -> None:
        """After a failure: if the certificates on disk were replaced, connect again with the new ones.

        gRPC closes the old connections when the last call on them has ended.
        """
        version = self._credentials.version()
        if version == self._version:
            return
        self._version = version  # before they are read: if they change meanwhile, the next failure reads them again
        try:
            self._connections = Connections(self.addresses, self._credentials, tls=self._tls)
        except CheckpointError as error:
            logger.warning("%s; the connections keep the certificates that were read before", error)

    def _go_on_from(self, member: int) -> None:
        """Ask the next member first, unless another thread has moved on already."""
        if self._current == member:
            self._current = (member + 1) % len(self.addresses)

    def _log_in(self, call: StoreCall, member: int) -> str:
        """The token, "" if none is needed. Logs in once, and again when the token has expired."""
        token = self._token
        if token is not None:
            return token
        with call.holding(self._logging_in):
            token = self._token
            if token is None:
                token = self._token = self._new_token(call, member)
            return token

    def _new_token(self, call: StoreCall, member: int) -> str:
        request = AUTHENTICATE.request(name=self._credentials.user, password=self._credentials.secret())
        try:
            return str(self._connections.stub(member, AUTHENTICATE)(request, timeout=call.share()).token)
        except grpc.RpcError as error:
            if "authentication is not enabled" not in (error.details() or ""):
                raise
            return ""


class _StreamEnded(grpc.RpcError):
    """A stream that ended without the answer."""

    def code(self) -> grpc.StatusCode:
        return grpc.StatusCode.UNAVAILABLE

    def details(self) -> str:
        return "the stream ended without an answer"


def _metadata(token: str | None) -> tuple[tuple[str, str], ...]:
    return (("token", token),) if token else ()
