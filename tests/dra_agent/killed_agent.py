"""An agent that dies at a given moment: DIE_AT is "before" or "after", a method of PodConfigs, and the n-th call."""

from __future__ import annotations

import itertools
import os
import signal
import sys
from typing import Any
from unittest import mock

from dra_agent.cli import main
from dra_agent.podconfigs import PodConfigs


def install() -> None:
    moment, method, number = os.environ["DIE_AT"].split()
    real = getattr(PodConfigs, method)
    calls = itertools.count(1)

    def deadly(self: PodConfigs, *given: Any) -> None:
        last = next(calls) == int(number)
        if last and moment == "before":
            os.kill(os.getpid(), signal.SIGKILL)
        real(self, *given)
        if last:
            os.kill(os.getpid(), signal.SIGKILL)

    mock.patch.object(PodConfigs, method, deadly).start()


if __name__ == "__main__":
    install()
    sys.exit(main())
