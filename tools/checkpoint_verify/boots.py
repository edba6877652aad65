"""States in one word in which boot a checkpoint was written."""

from __future__ import annotations

from checkpointmanager._format.boot import boot_id

THIS, EARLIER, UNKNOWN = "this", "earlier", "unknown"
WORDS = (THIS, EARLIER, UNKNOWN)


def word_for(boot: str, current: str) -> str:
    """`current` is the kernel's boot id; call current_boot() once for many checkpoints."""
    if not boot or not current:
        return UNKNOWN
    return THIS if boot == current else EARLIER


def current_boot() -> str:
    return boot_id()
