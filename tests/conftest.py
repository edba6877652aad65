"""What every test may rely on, however the run was started."""

from __future__ import annotations

import gc
import signal

import pytest


@pytest.fixture(autouse=True, scope="session")
def _ctrl_c_is_an_interrupt() -> None:
    """A shell starts background jobs with SIGINT ignored, and Python then raises no KeyboardInterrupt."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True, scope="session")
def _collections_walk_only_what_tests_make() -> None:
    """The five thousand tests themselves are 180,000 objects, and a collection follows each simulated death."""
    gc.collect()
    gc.freeze()
