"""The address manager of the guide, run as it stands there, never gives one address twice.

Its damaged lease has no previous generation. Every damage ends in another address, or in a refusal.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from ipaddress import IPv4Address
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from checkpointmanager import CheckpointError
from docs import pages
from tests.long import sample

NETWORK = "10.0.0.0/28"


@pytest.fixture(scope="module")
def guide() -> Any:
    """The code of the section, as a module."""
    (block,) = (
        block for block in pages.blocks_of("tools/docs/guides/adopt.md", "python") if "class Addresses" in block
    )
    module = ModuleType("guide_for_allocators")
    sys.modules[module.__name__] = module  # where the schema looks up the types of the dataclass
    exec(compile(block, "adopt.md", "exec"), module.__dict__)
    return module


HARMS: dict[str, Callable[[bytes, int], bytes]] = {
    "cut off": lambda blob, at: blob[:at],
    "zeroed from": lambda blob, at: blob[:at] + bytes(len(blob) - at),
    "zeroed until": lambda blob, at: bytes(at) + blob[at:],
    "two bits flipped": lambda blob, at: blob[:at] + bytes([blob[at] ^ 0b11]) + blob[at + 1 :],
}


def leased(guide: Any, directory: Path) -> bytes:
    """Pod 1 gets 10.0.0.1; returns the file."""
    addresses = guide.Addresses(directory, NETWORK, blind)
    with closing(addresses.cache):
        assert addresses.grant("pod-1") == IPv4Address("10.0.0.1")
    assert not list(directory.glob(".previous-*"))
    return (directory / "pod-1.json").read_bytes()


def second_grant(guide: Any, directory: Path, lease: bytes, in_use: Callable[[IPv4Address], bool]) -> str:
    """What another pod gets when the first pod's lease looks like this."""
    (directory / "pod-2.json").unlink(missing_ok=True)
    (directory / "pod-1.json").write_bytes(lease)
    addresses = guide.Addresses(directory, NETWORK, in_use)
    with closing(addresses.cache):
        try:
            return str(addresses.grant("pod-2"))
        except CheckpointError:
            return "refused"


def blind(_: IPv4Address) -> bool:
    """Hardware that cannot say what is in use."""
    return False


def seeing(address: IPv4Address) -> bool:
    return address == IPv4Address("10.0.0.1")


@pytest.mark.parametrize(
    ("harm", "in_use"), [*((harm, blind) for harm in list(HARMS)[:3]), ("two bits flipped", seeing)]
)
def test_no_damage_makes_it_give_one_address_twice(
    guide: Any, tmp_path: Path, harm: str, in_use: Callable[[IPv4Address], bool]
) -> None:
    directory = tmp_path / "leases"
    blob = leased(guide, directory)
    places = sample(range(1, len(blob) - 1), 5)
    harmed = (HARMS[harm](blob, at) for at in places)
    seen = Counter(second_grant(guide, directory, lease, in_use) for lease in harmed)
    assert seen["10.0.0.1"] == 0
    assert seen.total() == len(places) > 40


def test_it_goes_on_where_the_evidence_names_the_address_and_refuses_where_nothing_does(
    guide: Any, tmp_path: Path
) -> None:
    blob = leased(guide, tmp_path)
    data = blob.index(b',"data":')
    assert second_grant(guide, tmp_path, bytes(data) + blob[data:], blind) == "10.0.0.2"
    assert second_grant(guide, tmp_path, blob[:data] + bytes(len(blob) - data), blind) == "refused"
