"""The agent of a later release, as a program: its schema has version 5, with one more field, which version 4 keeps."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from unittest import mock

import draState._claims.cache
import draState._driver.claim
from checkpointmanager import Schema
from dra_agent.cli import main
from draState import ClaimInfoState
from draState._claims.state import to_2, to_3, to_4


@dataclass(frozen=True, slots=True)
class NewerState(ClaimInfoState):
    note: str = "of version 5"


def install() -> None:
    newer = Schema(
        "ClaimInfo",
        version=5,
        readable_by=4,
        type=NewerState,
        migrations={1: to_2, 2: to_3, 3: to_4, 4: lambda claim: claim},
    )
    mock.patch.object(draState._claims.cache, "CLAIMS", newer).start()
    mock.patch.object(draState._driver.claim, "ClaimInfoState", NewerState).start()


if __name__ == "__main__":
    install()
    sys.exit(main())
