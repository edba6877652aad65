"""Asks for the present allocation of claims, in threads of their own and with a limit on every wait."""

from __future__ import annotations

import asyncio
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


class LookUps:
    """One look-up hangs at most for `limit` seconds, as far as its caller is concerned."""

    def __init__(self, look_up: Callable[[ClaimRef], DriverClaim], limit: float) -> None:
        self._look_up = look_up
        self._limit = limit
        self._pool = ThreadPoolExecutor(THREADS, thread_name_prefix="look-up")

    def start(self, ref: ClaimRef) -> Future[DriverClaim]:
        return self._pool.submit(self._look_up, ref)

    def result(self, started: Future[DriverClaim]) -> Found:
        """What was found, or why nothing was."""
        try:
            return started.result(self._limit)
        except Exception as error:  # noqa: BLE001  (a hook is foreign code)
            return self._failed(started, error)

    async def find(self, ref: ClaimRef) -> Found:
        """The same without holding up the event loop."""
        started = self.start(ref)
        try:
            async with asyncio.timeout(self._limit):
                return await asyncio.wrap_future(started)
        except Exception as error:  # noqa: BLE001  (a hook is foreign code)
            return self._failed(started, error)

    def close(self) -> None:
        """Those under way are left to end by themselves."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _failed(self, started: Future[DriverClaim], error: Exception) -> Found:
        started.cancel()
        if isinstance(error, ClaimInvalid):
            return error
        if isinstance(error, TimeoutError) and not str(error):
            return NotAsked(f"no answer within {self._limit:g} s")
        return NotAsked(str(error) or type(error).__name__)
