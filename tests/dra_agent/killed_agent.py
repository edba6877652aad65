"""An agent that dies at a given moment: DIE_AT is "before" or "after", a function of podconfigs, and the n-th call."""

from __future__ import annotations

import itertools
import os
import signal
import sys
from typing import Any
from unittest import mock

from dra_agent.cli import main
from draState.plugin import _podconfigs as podconfigs


def install() -> None:
    moment, function, number = os.environ["DIE_AT"].split()
    real = getattr(podconfigs, function)
    calls = itertools.count(1)

    def deadly(*given: Any) -> None:
        last = next(calls) == int(number)
        if last and moment == "before":
            os.kill(os.getpid(), signal.SIGKILL)
        real(*given)
        if last:
            os.kill(os.getpid(), signal.SIGKILL)

    mock.patch.object(podconfigs, function, deadly).start()


if __name__ == "__main__":
    install()
    sys.exit(main())
