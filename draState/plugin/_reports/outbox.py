"""Requests to the API server that nobody waits for. They are sent a few at a time, and may get lost."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from http import HTTPStatus
from itertools import islice
from typing import Any

from .._apiserver.client import ApiError, ApiServer

logger = logging.getLogger("draState.plugin")

PERIOD_SECONDS = 1.0
AT_ONCE = 10  # requests per period: a node full of damaged claims must not flood the API server
WAITING = 1000  # requests; the oldest goes first if there are more


@dataclass(frozen=True, slots=True)
class Letter:
    """One request."""

    method: str
    target: str
    body: Mapping[str, Any]
    kind: str  # the media type of the body


class Outbox:
    """`run` it as a task. `put` may be called from any thread, and never waits."""

    def __init__(self, server: ApiServer) -> None:
        self._server = server
        self._waiting: dict[str, Letter] = {}  # by key, oldest first; guarded by _lock
        self._lock = threading.Lock()
        self._complaints: set[str] = set()

    def put(self, key: str, letter: Letter) -> None:
        """Send this soon, in place of a letter with the same key that has not been sent yet."""
        with self._lock:
            self._waiting.pop(key, None)
            self._waiting[key] = letter
            if len(self._waiting) > WAITING:
                del self._waiting[next(iter(self._waiting))]

    async def run(self) -> None:
        while True:
            await asyncio.to_thread(self.send)
            await asyncio.sleep(PERIOD_SECONDS)

    def send(self) -> None:
        """Send what waits. What the server could not take now stays; what it refuses is dropped."""
        with self._lock:
            letters = list(islice(self._waiting.items(), AT_ONCE))
        for key, letter in letters:
            try:
                self._server.send(letter.method, letter.target, letter.body, letter.kind)
            except ApiError as error:
                if _may_pass(error.status):
                    return
                self._refused(letter, error)
            with self._lock:
                if self._waiting.get(key) is letter:
                    del self._waiting[key]

    def _refused(self, letter: Letter, error: ApiError) -> None:
        if error.missing or error.status == HTTPStatus.CONFLICT:
            return  # the object is gone, or it was reported before
        kind = str(letter.body["kind"])
        if kind not in self._complaints:  # once: it is the same for the next one, unless rights have changed
            self._complaints.add(kind)
            logger.warning("not reported to the cluster: %s", error)


def _may_pass(status: int) -> bool:
    return (
        status in (0, HTTPStatus.UNAUTHORIZED, HTTPStatus.TOO_MANY_REQUESTS)
        or status >= HTTPStatus.INTERNAL_SERVER_ERROR
    )
