"""What every test may rely on, however the run was started."""

from __future__ import annotations

import gc
import signal
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings

# On a busy machine any example may take long.
settings.register_profile("busy", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("busy")


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


@pytest.fixture(scope="module")
def kit_standing_by() -> Iterator[None]:
    """The kit searches all objects for those that hold a function of `os` once, and not for each watch or crash.

    Not for modules that use pyfakefs: it would take the kit's stand-ins for functions of the modules that have them.
    """
    from checkpointmanager.testing._standins import standing_by  # not before coverage has started

    with standing_by():
        yield
