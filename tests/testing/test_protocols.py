"""The simulator is useful only if it finds what is wrong: right protocols pass, each wrong one is caught."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

from checkpointmanager.testing import Crash, Crashes, every_crash

from .protocols import (
    GONE,
    NEW,
    NEWEST,
    OLD,
    RIGHT,
    WRONG,
    read,
    removed,
    removed_in_the_wrong_order,
    setup,
)

pytestmark = pytest.mark.usefixtures("kit_standing_by")

Protocol = Callable[[Path], None]


def by_name(protocols: Iterable[Protocol]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("protocol", list(protocols), ids=lambda protocol: protocol.__name__)


def checked(protocol: Protocol, *, in_order: bool) -> Crashes:
    """The value is old or new and whole, and never older than what was acknowledged."""
    history = [OLD, GONE] if protocol in (removed, removed_in_the_wrong_order) else [OLD, NEW, NEWEST]

    def check(crash: Crash) -> None:
        value = read(crash.directory)
        assert value in history, "neither old nor new"
        if crash.acknowledged:
            assert history.index(value) >= history.index(crash.acknowledged[-1]), "older than acknowledged"

    return every_crash(protocol, setup=setup, in_order=in_order).check(check)


@pytest.mark.parametrize("in_order", [False, True], ids=["any names", "names in order"])
@by_name(RIGHT)
def test_a_right_protocol_survives_every_power_loss(protocol: Protocol, in_order: bool) -> None:
    assert checked(protocol, in_order=in_order).states >= 4


@pytest.mark.parametrize("in_order", [False, True], ids=["any names", "names in order"])
@by_name(WRONG)
def test_a_wrong_protocol_is_caught(protocol: Protocol, in_order: bool) -> None:
    with pytest.raises(AssertionError, match=r"neither old nor new|older than acknowledged") as caught:
        checked(protocol, in_order=in_order)
    assert "so the disk holds:" in caught.value.__notes__[0]
