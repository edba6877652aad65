"""Runs staticx with two changes: packed files get the commit's time, and the loader says what to set.

Run it in the environment with the dependency group release: staticx_adapted.py PROGRAM TARGET
"""

from __future__ import annotations

import os
import sys
import tarfile
from pathlib import Path
from typing import Any

# The loader's messages where /tmp is mounted noexec, or full. It is an ELF file, so the length must stay the same.
MESSAGES = {
    b"Failed to execv() %s: %m": b"Set TMPDIR to run %s: %m",
    b"tar_extract_all() failed": b"TMPDIR: unpacking failed",
}

_undated = tarfile.TarFile.gettarinfo


def _dated(self: tarfile.TarFile, *given: Any, **named: Any) -> tarfile.TarInfo:
    info = _undated(self, *given, **named)
    info.mtime = int(os.environ["SOURCE_DATE_EPOCH"])
    info.uid = info.gid = 0
    info.uname = info.gname = "root"
    return info


def with_advice(program: bytes) -> bytes:
    """The program with our messages. Raises ValueError if staticx has other ones than we know."""
    for theirs, ours in MESSAGES.items():
        if program.count(theirs) != 1 or len(theirs) != len(ours):
            raise ValueError(f"staticx no longer says {theirs!r}")
        program = program.replace(theirs, ours)
    return program


if __name__ == "__main__":
    from staticx.api import generate

    tarfile.TarFile.gettarinfo = _dated  # type: ignore[method-assign]
    generate(sys.argv[1], sys.argv[2])
    target = Path(sys.argv[2])
    target.write_bytes(with_advice(target.read_bytes()))
