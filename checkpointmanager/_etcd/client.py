"""The way to the servers: several members, a limit on every wait, and no answer taken for granted.

A call goes to the member that answered last, and on to the next one when that fails, until one answers or the time
is up. So a request may be carried out more than once; who sends one that changes anything makes sure, by what it
compares, that only the first time counts (see commit.py).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import grpc

from .endpoints import Credentials, addresses, channels
from .faults import Compacted, NoAnswer, Refused, Verdict, fault_of
from .wire import AUTHENTICATE, LEASE_KEEP_ALIVE, WATCH, Method

TRIES = 3  # a member that hangs costs a third of the time at most
FIRST_PAUSE, LONGEST_PAUSE = 0.02, 0.5  # seconds, when all members have failed at once


class Call:
    """One call of the store: how long it may still take, and whether a change that was sent may have been made."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.unsure = False
        self._end = time.monotonic() + seconds

    def left(self) -> float:
        return max(0.0, self._end - time.monotonic())

    def share(self) -> float:
        """The time that one member may take."""
        return min(self.left(), max(self.seconds / TRIES, 0.1))


class _Ended(grpc.RpcError):
    """A stream that ended without the answer."""

    def code(self) -> grpc.StatusCode:
        return grpc.StatusCode.UNAVAILABLE

    def details(self) -> str:
        return "the stream ended without an answer"


class Client:
    """Speaks to one of several members of a cluster. Safe for many threads."""

    def __init__(self, endpoints: Sequence[str], credentials: Credentials) -> None:
        self.addresses, tls = addresses(endpoints, credentials)
        self._credentials = credentials
        self._channels = channels(self.addresses, credentials, tls=tls)
        self._stubs: dict[tuple[int, str], Any] = {}
        self._current = 0  # the member that is asked first
        self._token: str | None = None if credentials.user else ""  # None: not asked for yet
        self._logging_in = threading.Lock()

    def ask(self, call: Call, method: Method, request: Any, *, changing: bool = False) -> Any:
        """The answer of some member; Refused if it is no, NoAnswer if there was none in time.

        With changing=True the call is unsure from the moment at which an answer is missing.
        """
        failures = logins = 0
        while True:
            member = self._current
            sent = False
            try:
                self._log_in(call, member)
                sent = True
                return self._ask_one(call, member, method, request)
            except grpc.RpcError as error:
                fault = fault_of(error)
            if fault.verdict is Verdict.LOGIN and self._credentials.user and not logins:
                logins += 1
                self._token = None
                continue
            if fault.verdict in (Verdict.REFUSED, Verdict.LOGIN):
                raise (Compacted if "compacted" in fault.text else Refused)(fault.errno, fault.text)
            call.unsure = call.unsure or (changing and sent and fault.verdict is Verdict.UNKNOWN)
            self._go_on_from(member)
            failures += 1
            if failures % len(self._channels) == 0:
                pause = min(FIRST_PAUSE * 2 ** (failures // len(self._channels)), LONGEST_PAUSE)
                time.sleep(min(pause, call.left()))
            if not call.left():
                raise NoAnswer(fault.errno, f"no answer within {call.seconds:g} s, the last error was: {fault.text}")

    @contextmanager
    def watching(self, request: Any, seconds: float) -> Iterator[Iterator[Any]]:
        """The answers of a watch, for so long at most. Raises grpc.RpcError when it breaks or the time is up."""
        done = threading.Event()

        def requests() -> Iterator[Any]:
            yield request
            done.wait(seconds)  # the stream lives as long as this does

        member = self._current
        replies = self._stub(member, WATCH)(requests(), timeout=seconds, metadata=self._metadata())
        try:
            yield replies
        except grpc.RpcError:
            self._go_on_from(member)
            raise
        finally:
            done.set()
            replies.cancel()

    def close(self) -> None:
        for channel in self._channels:
            channel.close()

    def _ask_one(self, call: Call, member: int, method: Method, request: Any) -> Any:
        stub = self._stub(member, method)
        if method is LEASE_KEEP_ALIVE:  # a stream by nature; one question and its answer are all we want
            for reply in stub(iter([request]), timeout=call.share(), metadata=self._metadata()):
                return reply
            raise _Ended
        return stub(request, timeout=call.share(), metadata=self._metadata())

    def _stub(self, member: int, method: Method) -> Callable[..., Any]:
        found = self._stubs.get((member, method.path))
        if found is None:
            channel = self._channels[member]
            kind = channel.stream_stream if method in (LEASE_KEEP_ALIVE, WATCH) else channel.unary_unary
            found = kind(method.path, method.request.SerializeToString, method.reply.FromString)
            self._stubs[member, method.path] = found
        return found

    def _go_on_from(self, member: int) -> None:
        """To the next member, unless another thread has done so already."""
        if self._current == member:
            self._current = (member + 1) % len(self._channels)

    def _metadata(self) -> tuple[tuple[str, str], ...]:
        return (("token", self._token),) if self._token else ()

    def _log_in(self, call: Call, member: int) -> None:
        """Once, and again when the token has run out."""
        if self._token is not None:
            return
        with self._logging_in:
            if self._token is not None:
                return
            request = AUTHENTICATE.request(name=self._credentials.user, password=self._credentials.password)
            try:
                self._token = self._stub(member, AUTHENTICATE)(request, timeout=call.share()).token
            except grpc.RpcError as error:
                if "authentication is not enabled" not in (error.details() or ""):
                    raise
                self._token = ""
