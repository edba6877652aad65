"""Looks up the current allocation of claims, in separate threads and with a limit on every wait."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

from ._driver import ClaimRef
from ._driverclaim import DriverClaim
from ._errors import ClaimInvalid, ServerUnreachable, in_one_line

THREADS = 16  # separate threads, so that a slow API server delays no unprepare


@dataclass(frozen=True, slots=True)
class NotAnswered:
    """The current allocation is unknown: the API server refused to give it, or took too long."""

    why: str


@dataclass(frozen=True, slots=True)
class Unreached(NotAnswered):
    """There was no connection to the API server."""


Found = DriverClaim | ClaimInvalid | NotAnswered


class LookUp:
    """One look-up, running in its thread."""

    def __init__(self, look_ups: LookUps, ref: ClaimRef, answer: Future[DriverClaim]) -> None:
        self._look_ups = look_ups
        self._ref = ref
        self._answer = answer
        self._end = time.monotonic() + look_ups.limit

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
            async with asyncio.timeout(self._look_ups.limit):
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
        if isinstance(error, TimeoutError):
            return NotAnswered(str(error) or f"no answer within {self._look_ups.limit:g} s")
        self._look_ups.refused, self._look_ups.refusal = self._ref, in_one_line(error)
        return NotAnswered(in_one_line(error))


class LookUps:
    """Starts look-ups. A caller waits at most `limit` seconds for each."""

    def __init__(self, look_up: Callable[[ClaimRef], DriverClaim], limit: float) -> None:
        self.limit = limit
        self.refusal = ""  # why the API server refused to answer, until it answers; an outage is no refusal
        self.refused: ClaimRef | None = None  # the claim that it was asked for
        self._look_up = look_up
        self._pool = ThreadPoolExecutor(THREADS, thread_name_prefix="look-up")

    def start(self, ref: ClaimRef) -> LookUp:
        return LookUp(self, ref, self._pool.submit(self._look_up, ref))

    def answered(self, found: Found) -> Found:
        self.refused, self.refusal = None, ""
        return found

    def close(self) -> None:
        """Start no more look-ups. Running ones end by themselves."""
        self._pool.shutdown(wait=False, cancel_futures=True)
