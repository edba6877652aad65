"""Looks up the current allocation of claims, in separate threads and with a limit on every wait."""

from __future__ import annotations

import asyncio
import time
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

from .._draplugin import ClaimRef
from .._errors import ClaimInvalid, ServerUnreachable, in_one_line
from .claim import DriverClaim
from .hooks import DriverHooks

SEARCH = 10  # times as long: the claims of the whole cluster are listed
THREADS = 16  # separate threads, so that a slow API server delays no unprepare


@dataclass(frozen=True, slots=True)
class NotAnswered:
    """The current allocation is unknown: the API server refused to give it, or took too long."""

    why: str


@dataclass(frozen=True, slots=True)
class Unreached(NotAnswered):
    """There was no connection to the API server."""


Found = DriverClaim | ClaimInvalid | NotAnswered


class _NotSearched(Exception):
    pass


class LookUp:
    """One look-up, running in its thread."""

    def __init__(self, look_ups: LookUps, ref: ClaimRef, answer: Future[DriverClaim], limit: float) -> None:
        self._look_ups = look_ups
        self._ref = ref
        self._answer = answer
        self._limit = limit
        self._end = time.monotonic() + limit

    def result(self) -> Found:
        """Wait for the allocation, or the reason why there is none."""
        try:
            found = self._answer.result(max(0.0, self._end - time.monotonic()))
        except Exception as error:  # noqa: BLE001  (a hook is foreign code)
            return self._failed(error)
        return self._look_ups.answered(found)

    async def found(self) -> Found:
        """Like result, without blocking the event loop."""
        try:
            async with asyncio.timeout(self._limit):
                found = await asyncio.wrap_future(self._answer)
        except Exception as error:  # noqa: BLE001  (a hook is foreign code)
            return self._failed(error)
        return self._look_ups.answered(found)

    def _failed(self, error: Exception) -> Found:
        self._answer.cancel()
        if isinstance(error, ClaimInvalid):
            return self._look_ups.answered(error)
        if isinstance(error, ServerUnreachable | ConnectionRefusedError):
            return Unreached(in_one_line(error))
        if isinstance(error, _NotSearched):
            return NotAnswered(str(error))
        if isinstance(error, TimeoutError):
            return NotAnswered(str(error) or f"no answer within {self._limit:g} s")
        self._look_ups.refused, self._look_ups.refusal = self._ref, in_one_line(error)
        return NotAnswered(in_one_line(error))


class LookUps:
    """Starts look-ups. A caller waits at most `limit` seconds for each."""

    def __init__(self, hooks: DriverHooks, limit: float) -> None:
        self.limit = limit
        self.refusal = ""  # why the API server refused to answer, until it answers; an outage is no refusal
        self.refused: ClaimRef | None = None  # the claim that it was asked for
        self._hooks = hooks
        self._pool = ThreadPoolExecutor(THREADS, thread_name_prefix="look-up")

    def start(self, ref: ClaimRef) -> LookUp:
        """Without a name, the claim is searched by its UID first."""
        look_up = self._hooks.look_up if ref.name else self._search
        return LookUp(self, ref, self._pool.submit(look_up, ref), self.limit if ref.name else self.limit * SEARCH)

    def answered(self, found: Found) -> Found:
        self.refused, self.refusal = None, ""
        return found

    def _search(self, ref: ClaimRef) -> DriverClaim:
        found = self._hooks.find(ref.uid)
        if found is None:
            raise _NotSearched("its name is not known, and this driver cannot search for claims by UID")
        return self._hooks.look_up(found)

    def close(self) -> None:
        """Start no more look-ups. Running ones end by themselves."""
        self._pool.shutdown(wait=False, cancel_futures=True)
