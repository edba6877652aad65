"""The pytest plugin: power losses and faults as fixtures. It costs nothing in tests that do not use them."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from typing import Any

import pytest

from checkpointmanager import testing  # whose parts are loaded on first use

pytest.register_assert_rewrite("checkpointmanager.testing._conformance")

FIXTURES = ("checkpoint_chaos", "checkpoint_faults")


class Chaos:
    """Remembers the current crash or fault for the report of a failing test, and ends the iteration with the test."""

    def __init__(self, every: Callable[..., Any]) -> None:
        self._every = every
        self._iterations: list[Generator[Any, None, None]] = []
        self.now: Any = None  # what the test was looking at last

    def __call__(self, scenario: Callable[[Any], object], **options: Any) -> Iterator[Any]:
        iteration = self._watched(self._every(scenario, **options))
        self._iterations.append(iteration)
        return iteration

    def close(self) -> None:
        for iteration in self._iterations:
            iteration.close()

    def _watched(self, every: Any) -> Generator[Any, None, None]:
        for self.now in every:
            yield self.now
        self.now = None


@pytest.fixture
def checkpoint_chaos() -> Iterator[Callable[..., Iterator[testing.Crash]]]:
    """every_crash: `for crash in checkpoint_chaos(scenario): ...` visits every disk that a power loss may leave."""
    yield from _chaos(testing.every_crash)


@pytest.fixture
def checkpoint_faults() -> Iterator[Callable[..., Iterator[testing.Fault]]]:
    """every_fault: `for fault in checkpoint_faults(scenario): ...` visits every call that may fail."""
    yield from _chaos(testing.every_fault)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> None:
    """Shows the crash or fault in which a test failed. Returns None, so pytest makes the report itself."""
    if call.when == "call" and call.excinfo:
        for name in FIXTURES:
            chaos = getattr(item, "funcargs", {}).get(name)
            if isinstance(chaos, Chaos) and chaos.now is not None:
                item.add_report_section("call", name, str(chaos.now))


def _chaos(every: Callable[..., Any]) -> Iterator[Chaos]:
    chaos = Chaos(every)
    yield chaos
    chaos.close()
