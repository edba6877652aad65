"""Removes values that must not leave the node from an export. A mask that matches nothing is reported: it may be
mistyped, and then the secret is still in the export."""

from __future__ import annotations

from typing import Any

from . import paths

MASKED = "(masked)"


class Masks:
    """The patterns of the command line, and how often each has matched."""

    def __init__(self, patterns: list[str]) -> None:
        """Raises ValueError for a pattern that is not a path."""
        self._steps = {pattern: paths.parse(pattern) for pattern in patterns}
        self._hits = dict.fromkeys(patterns, 0)

    def __bool__(self) -> bool:
        return bool(self._steps)

    def apply(self, document: dict[str, Any]) -> None:
        """Mask the document in place. `$` is the document itself, as `show --json` prints it: $.data.token"""
        for pattern, steps in self._steps.items():
            self._hits[pattern] += paths.replace(document, steps, MASKED)

    @property
    def missed(self) -> list[str]:
        """The patterns that matched nothing."""
        return [pattern for pattern, hits in self._hits.items() if not hits]
