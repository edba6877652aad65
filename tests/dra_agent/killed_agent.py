"""An agent that dies at a given moment: DIE_AT is "before" or "after", a method of PodConfigStore, and the n-th call.

With "failing" in place of the moment, that call fails as on a disk that cannot be written.
"""

from __future__ import annotations

import errno
import itertools
import os
import signal
import sys
from typing import Any
from unittest import mock

from checkpointmanager import CheckpointWriteFailed
from dra_agent.cli import main
from draState import PodConfigStore


def install() -> None:
    moment, method, number = os.environ["DIE_AT"].split()
    real = getattr(PodConfigStore, method)
    calls = itertools.count(1)

    def deadly(*given: Any) -> Any:
        chosen = next(calls) == int(number)
        if chosen and moment == "failing":
            raise CheckpointWriteFailed("p1", "p1.json", OSError(errno.EROFS, "read-only"), in_doubt=False)
        if chosen and moment == "before":
            os.kill(os.getpid(), signal.SIGKILL)
        result = real(*given)
        if chosen:
            os.kill(os.getpid(), signal.SIGKILL)
        return result

    mock.patch.object(PodConfigStore, method, deadly).start()


if __name__ == "__main__":
    install()
    sys.exit(main())
