"""The agent of the previous release, as a program, with regard to its files: it knows version 3 at most."""

from __future__ import annotations

import sys
from unittest import mock

import draState._claims.cache
from checkpointmanager import Schema
from dra_agent.cli import main
from draState import ClaimInfoState
from draState._claims.state import to_2, to_3


def install() -> None:
    older = Schema("ClaimInfo", version=3, type=ClaimInfoState, migrations={1: to_2, 2: to_3})
    mock.patch.object(draState._claims.cache, "CLAIMS", older).start()


if __name__ == "__main__":
    install()
    sys.exit(main())
