"""Asks for the present allocation of claims, in threads of their own and with a limit on every wait."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

from ._driver import ClaimRef
from ._driverclaim import DriverClaim
from ._errors import ClaimInvalid

THREADS = 16  # of their own, so that a slow API server holds up no unprepare


@dataclass(frozen=True, slots=True)
class NotAsked:
    """Nobody could be asked, so nothing is known about the present allocation."""

    why: str


Found = DriverClaim | ClaimInvalid | NotAsked


class LookUp:
    """One question, under way in its thread."""

    def __init__(self, answer: Future[DriverClaim], limit: float) -> None:
        self._answer = answer
        self._limit = limit
        self._end = time.monotonic() + limit

    def result(self) -> Found:
        """What was found, or why nothing was."""
        try:
            return self._answer.result(max(0.0, self._end - time.monotonic()))
        except Exception as error:  # noqa: BLE001  (a hook is foreign code)
            return self._failed(error)

    async def found(self) -> Found:
        """The same without holding up the event loop."""
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
    """A look-up takes at most `limit` seconds, as far as its caller is concerned."""

    def __init__(self, look_up: Callable[[ClaimRef], DriverClaim], limit: float) -> None:
        self._look_up = look_up
        self._limit = limit
        self._pool = ThreadPoolExecutor(THREADS, thread_name_prefix="look-up")

    def start(self, ref: ClaimRef) -> LookUp:
        return LookUp(self._pool.submit(self._look_up, ref), self._limit)

    def close(self) -> None:
        """Those under way are left to end by themselves."""
        self._pool.shutdown(wait=False, cancel_futures=True)
