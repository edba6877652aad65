"""A kill loses nothing that the kernel has, so where kills come at chosen calls, no sync has to reach a disk."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from checkpointmanager.testing._oscalls import standing_by

from ..checkpointmanager.conftest import no_waiting_for_the_disk

__all__ = ["no_waiting_for_the_disk"]


@pytest.fixture(autouse=True)
def _stood_in_for() -> Iterator[None]:
    """The kit searches for references to functions of `os` once, not in each child that will be killed."""
    with standing_by():
        yield
