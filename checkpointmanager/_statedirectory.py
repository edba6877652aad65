"""Where systemd wants the state of a service to be."""

from __future__ import annotations

import errno
import os
from pathlib import Path

from ._errors import DirectoryUnusable

VARIABLE = "STATE_DIRECTORY"


def state_directory(name: str) -> Path:
    """The folder `name` in the directory that systemd made for this service, for every class that takes a directory.

        CheckpointCache(state_directory("leases"), LEASES)

    The unit needs StateDirectory=; systemd then sets $STATE_DIRECTORY. DirectoryUnusable if that is not set, or not
    one absolute path: there is no default, because state in the wrong place looks like no state at all.
    """
    if not isinstance(name, str) or name in ("", ".", "..") or "/" in name or "\0" in name:
        raise ValueError(f"the name of a folder is needed, not {name!r}")
    given = os.environ.get(VARIABLE, "")
    if not given:
        raise _unusable(name, errno.ENOENT, f"${VARIABLE} is not set; the unit needs StateDirectory=")
    if ":" in given or not os.path.isabs(given):
        raise _unusable(name, errno.EINVAL, f"${VARIABLE} must be one absolute path; if it lists several, pass yours")
    return Path(given, name)


def _unusable(name: str, number: int, why: str) -> DirectoryUnusable:
    return DirectoryUnusable(name, OSError(number, why))
