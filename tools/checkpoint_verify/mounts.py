"""Lists mounts from the kernel's own list: it touches no mount, because a dead one never answers."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import suppress
from typing import NamedTuple


class Mount(NamedTuple):
    """One line of the list."""

    device: str  # major:minor
    path: str
    kind: str


def mounts() -> Iterator[Mount]:
    with (
        suppress(OSError, ValueError),
        open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as rows,
    ):
        for row in rows:
            # 36 35 98:0 /root /mount options shared:1 - ext4 /dev/sda1 options
            fields = row.split(" ")
            yield Mount(fields[2], _unescaped(fields[4]), fields[fields.index("-") + 1])


def mounted_in(folder: int) -> dict[str, str]:
    """Names in an open folder where other file systems are mounted, with their types."""
    found: dict[str, str] = {}
    with suppress(OSError):
        here = os.readlink(f"/proc/self/fd/{folder}").rstrip("/")
        device = os.fstat(folder).st_dev
        own = f"{os.major(device)}:{os.minor(device)}"
        for mount in mounts():
            parent, _, name = mount.path.rpartition("/")
            if parent == here and name and mount.device != own:
                found[name] = mount.kind
    return found


def mounts_below(path: str) -> dict[str, str]:
    """Absolute paths of all mount points below a path, with their types."""
    above = os.path.abspath(path).rstrip("/") + "/"
    real = os.path.realpath(path).rstrip("/") + "/"
    return {above + mount.path.removeprefix(real): mount.kind for mount in mounts() if mount.path.startswith(real)}


def _unescaped(text: str) -> str:
    return re.sub(r"\\([0-7]{3})", lambda octal: chr(int(octal[1], 8)), text) if "\\" in text else text
