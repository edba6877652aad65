"""Takes a safeguard away, and looks for a power loss that then breaks a promise.

A proof that has never failed proves nothing. So each rule of the write path has an entry in test_known_bad.py: the
function that keeps the rule, and the scenario in which a store without it loses something.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any, NamedTuple
from unittest import mock

from checkpointmanager.testing import Crash, every_crash

from .oracle import check
from .sampling import sampled
from .scenarios import MATTERS_NOT, Scenario

Patch = Callable[[], AbstractContextManager[Any]]


class KnownBad(NamedTuple):
    scenario: Scenario
    patch: Patch  # takes the safeguard away
    restarting: bool = False  # whether it is also missing in the restart: needed for rules of opening and reading


def without(function: str) -> Patch:
    """The function, by its dotted name, does nothing."""
    return instead_of(function, lambda *_, **__: None)


def instead_of(function: str, other: Callable[..., Any]) -> Patch:
    """The function, by its dotted name, does something else."""
    return lambda: mock.patch(function, other)


def inside(method: tuple[type, str], patch: Patch) -> Patch:
    """While the method runs, and only then, the safeguard is gone."""
    owner, name = method
    real = getattr(owner, name)

    def call(*arguments: Any, **options: Any) -> Any:
        with patch():
            return real(*arguments, **options)

    return lambda: mock.patch.object(owner, name, call)


def loss_found(bad: KnownBad, *, in_order: bool = False) -> str:
    """The first broken promise, with the power loss that led to it; "" if there is none."""

    def act(given: Any) -> None:
        with bad.patch():
            bad.scenario.act(given)

    def examine(crash: Crash) -> None:
        with bad.patch() if bad.restarting else nullcontext():
            check(crash)

    try:
        every_crash(act, setup=bad.scenario.setup, in_order=in_order, ignore=MATTERS_NOT).check(
            sampled(examine, first=130, each=20)  # later losses come in runs of 25 states and more
        )
    except AssertionError as found:
        return "\n".join([str(found), *getattr(found, "__notes__", [])])
    return ""
