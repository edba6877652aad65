"""The driver under rehearsal, as a class that `python -m draState.plugin` serves: it can be killed at a given moment.

REHEARSAL_DRIVER names the driver, and the file in REHEARSAL_MOMENT the moment, such as "after set_up": the next such
call ends in SIGKILL.
"""

from __future__ import annotations

import inspect
import logging
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from .. import Driver
from ..__main__ import named
from ._node import DRIVER, MOMENT

logger = logging.getLogger("rehearsal")


def mortal(driver: type[Driver]) -> type[Driver]:
    """A subclass whose set_up and tear_down may be the last thing that the process does."""
    hooks = {name: _mortal(getattr(driver, name), name) for name in ("set_up", "tear_down")}
    return type(driver.__name__, (driver,), hooks)


def _mortal(hook: Callable[..., Any], name: str) -> Callable[..., Any]:
    async def asynchronous(self: Driver, claim: Any) -> Any:
        with _watched(name):
            return await hook(self, claim)

    def synchronous(self: Driver, claim: Any) -> Any:
        with _watched(name):
            return hook(self, claim)

    return asynchronous if inspect.iscoroutinefunction(hook) else synchronous


@contextmanager
def _watched(name: str) -> Iterator[None]:
    _die_at(f"before {name}")
    try:
        yield
    except Exception:
        logger.exception("%s failed", name)  # kubelet gets only the error; its author wants to know where
        raise
    _die_at(f"after {name}")


def _die_at(now: str) -> None:
    moment = Path(os.environ[MOMENT])
    if moment.read_text() == now:
        moment.write_text("")
        os.kill(os.getpid(), signal.SIGKILL)


Mortal = mortal(named(os.environ[DRIVER]))
