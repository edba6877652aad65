"""Linux CPU lists ("0-3,8") as kubelet parses them: no blanks, no empty parts, no descending ranges."""

from __future__ import annotations

import re

MAX_CPUS = 1 << 20  # CPUs in one set; kubelet has no limit, but memory has

_NUMBER = re.compile(r"[+-]?[0-9]{1,19}", re.ASCII)


def parse(text: str) -> list[range]:
    """The ranges of the list. Raises ValueError if kubelet would refuse it."""
    if text == "":
        return []
    return [_range(part) for part in text.split(",")]


def members(text: str) -> list[int]:
    """The CPUs of the list, sorted, each once. Also raises ValueError for sets of absurd size."""
    ranges = parse(text)
    if sum(part.stop - part.start for part in ranges) > MAX_CPUS:
        raise ValueError(f"CPU set of more than {MAX_CPUS} CPUs")
    return sorted({cpu for part in ranges for cpu in part})


def _range(part: str) -> range:
    first, dash, last = part.partition("-")
    low = _number(first, part)
    high = _number(last, part) if dash else low
    if low > high:
        raise ValueError(f"CPU range {part!r} runs backwards")
    return range(low, high + 1)


def _number(text: str, part: str) -> int:
    if not _NUMBER.fullmatch(text) or not -(2**63) <= int(text) < 2**63:
        raise ValueError(f"{part!r} is not a CPU or a range of CPUs")
    return int(text)
