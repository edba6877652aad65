"""Runs staticx with the commit's time on the packed files; by default it uses the time of its own copies.

Run it in the environment with the dependency group release: staticx_dated.py PROGRAM TARGET
"""

from __future__ import annotations

import os
import sys
import tarfile
from typing import Any

from staticx.api import generate

_undated = tarfile.TarFile.gettarinfo


def _dated(self: tarfile.TarFile, *given: Any, **named: Any) -> tarfile.TarInfo:
    info = _undated(self, *given, **named)
    info.mtime = int(os.environ["SOURCE_DATE_EPOCH"])
    info.uid = info.gid = 0
    info.uname = info.gname = "root"
    return info


if __name__ == "__main__":
    tarfile.TarFile.gettarinfo = _dated  # type: ignore[method-assign]
    generate(sys.argv[1], sys.argv[2])
