"""The id of the current boot. Headers carry it, so that a reboot is visible."""

from __future__ import annotations

from .._interruption import ignored


def boot_id() -> str:
    """The kernel's id for this boot, or "" if it has none (then nothing is known about reboots)."""
    with ignored(OSError, ValueError), open("/proc/sys/kernel/random/boot_id", encoding="utf-8") as file:
        return file.read().strip()
    return ""
