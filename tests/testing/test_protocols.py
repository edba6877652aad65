"""The simulator is useful only if it finds what is wrong: right protocols pass, each wrong one is caught."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

import pytest
from pyfakefs.fake_filesystem import FakeFilesystem

from checkpointmanager.testing import Crash, Crashes, every_crash

from .protocols import (
    GONE,
    NAME,
    NEW,
    NEWEST,
    OLD,
    PREVIOUS,
    RIGHT,
    WRONG,
    classic_with_pathlib,
    removed,
    removed_in_the_wrong_order,
    setup,
    truncated_and_written,
)

Protocol = Callable[[Path], None]
EXCHANGE = f"{__package__}.protocols.exchange"


def by_name(protocols: Iterable[Protocol]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("protocol", list(protocols), ids=lambda protocol: protocol.__name__)


def crashes_of(protocol: Protocol) -> Crashes:
    return every_crash(protocol, setup=setup, exchanges=[EXCHANGE])


def checked(protocol: Protocol) -> Crashes:
    """The value is old or new and whole, and never older than what was acknowledged."""
    history = [OLD, GONE] if protocol in (removed, removed_in_the_wrong_order) else [OLD, NEW, NEWEST]

    def check(crash: Crash) -> None:
        value = read(crash.directory)
        assert value in history, "neither old nor new"
        if crash.acknowledged:
            assert history.index(value) >= history.index(crash.acknowledged[-1]), "older than acknowledged"

    return crashes_of(protocol).check(check)


def read(directory: Path) -> bytes:
    for path in (directory / "new" / NAME, directory / NAME, directory / PREVIOUS):
        if path.exists():
            return path.read_bytes()
    return GONE


@by_name(RIGHT)
def test_a_right_protocol_survives_every_power_loss(protocol: Protocol) -> None:
    crashes = checked(protocol)
    assert crashes.states >= 4
    assert crashes.left_out == 0


@by_name(WRONG)
def test_a_wrong_protocol_is_caught(protocol: Protocol) -> None:
    with pytest.raises(AssertionError, match=r"neither old nor new|older than acknowledged") as caught:
        checked(protocol)
    assert "so the disk holds:" in caught.value.__notes__[0]


@by_name(p for p in RIGHT if p is not classic_with_pathlib)
def test_a_right_protocol_survives_on_pyfakefs(fs: FakeFilesystem, protocol: Protocol) -> None:
    assert checked(protocol).states >= 4


@by_name(p for p in WRONG if p is not truncated_and_written)
def test_a_wrong_protocol_is_caught_on_pyfakefs(fs: FakeFilesystem, protocol: Protocol) -> None:
    with pytest.raises(AssertionError, match=r"neither old nor new|older than acknowledged"):
        checked(protocol)


def test_both_file_systems_give_the_same_number_of_states(fs: FakeFilesystem) -> None:
    protocols = [p for p in RIGHT if p is not classic_with_pathlib]
    faked = [crashes_of(protocol).check(lambda _: None).states for protocol in protocols]
    fs.pause()
    assert [crashes_of(protocol).check(lambda _: None).states for protocol in protocols] == faked
