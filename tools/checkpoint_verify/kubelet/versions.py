"""The kubelet minor versions whose way of reading these files is known, by their number after "1."."""

from __future__ import annotations

import re

OLDEST, NEWEST = 30, 37
MINORS = tuple(range(OLDEST, NEWEST + 1))

_VERSION = re.compile(r"v?1\.([0-9]{1,3})(?:[.+-].*)?", re.ASCII)


def name(minor: int) -> str:
    """The version as people write it: 37 -> "1.37"."""
    return f"1.{minor}"


def parse(text: str | None) -> int:
    """The minor number of "1.35", "v1.36.2", "1.37.0-rc.1"; None is the newest. Raises ValueError if unknown."""
    if text is None:
        return NEWEST
    found = _VERSION.fullmatch(text.strip())
    if found is None or int(found.group(1)) not in MINORS:
        known = ", ".join(map(name, MINORS))
        raise ValueError(f"unknown kubelet version {text!r}; known versions: {known}")
    return int(found.group(1))
