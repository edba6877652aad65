"""Looks up the current allocation of claims, in separate threads and with a limit on every wait."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

from ._driver import ClaimRef
from ._driverclaim import DriverClaim
from ._errors import ClaimInvalid

THREADS = 16  # separate threads, so that a slow API server delays no unprepare


@dataclass(frozen=True, slots=True)
class NotAsked:
    """The look-up got no answer, so the current allocation is unknown."""

    why: str


Found = DriverClaim | ClaimInvalid | NotAsked


class LookUp:
    """One look-up, running in its thread."""

    def __init__(self, answer: Future[DriverClaim], limit: float) -> None:
        self._answer = answer
        self._limit = limit
        self._end = time.monotonic() + limit

    def result(self) -> Found:
        """Wait for the allocation, or the reason why there is none."""
        try:
            return self._answer.result(max(0.0, self._end - time.monotonic()))
        except Exception as error:  # noqa: BLE001  (a hook is foreign code)
            return self._failed(error)

    async def found(self) -> Found:
        """Like result, without blocking the event loop."""
        try:
            async with asyncio.timeout(self._limit):
                return await asyncio.wrap_future(self._answer)
        except Exception as error:  # noqa: BLE001  (a hook is foreign code)
            return self._failed(error)

    def _failed(self, error: Exception) -> Found:
        self._answer.cancel()
        if isinstance(error, ClaimInvalid):
            return error
        if isinstance(error, TimeoutError) and not str(error):
            return NotAsked(f"no answer within {self._limit:g} s")
        return NotAsked(str(error) or type(error).__name__)


class LookUps:
    """Starts look-ups. A caller waits at most `limit` seconds for each."""

    def __init__(self, look_up: Callable[[ClaimRef], DriverClaim], limit: float) -> None:
        self._look_up = look_up
        self._limit = limit
        self._pool = ThreadPoolExecutor(THREADS, thread_name_prefix="look-up")

    def start(self, ref: ClaimRef) -> LookUp:
        return LookUp(self._pool.submit(self._look_up, ref), self._limit)

    def close(self) -> None:
        """Start no more look-ups. Running ones end by themselves."""
        self._pool.shutdown(wait=False, cancel_futures=True)
