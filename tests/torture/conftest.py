"""A kill takes nothing that the kernel has, so where kills come at chosen calls no sync has to reach a disk."""

from __future__ import annotations

from ..checkpointmanager.conftest import no_waiting_for_the_disk

__all__ = ["no_waiting_for_the_disk"]
