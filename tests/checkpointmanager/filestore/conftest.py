"""Other processes for the tests of the file store."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from ..processes import Agent


@pytest.fixture
def agent() -> Iterator[Agent]:
    with Agent() as agent:
        yield agent
