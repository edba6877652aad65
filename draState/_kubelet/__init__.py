"""Reads kubelet's own file of claims, `dra_manager_state`, into our states, and writes it as kubelet does.

`dra_health_state`, the health of devices, is only read: drivers report again within seconds.

Import and export take one line each:

    cache.put(*map(ClaimInfo, read_dra_manager_state(blob).claims))
    blob = write_dra_manager_state(claim.state for claim in cache if not claim.unknown)

Do not export unknown claims: kubelet would take a guess for the truth.

A file passes through `syntax` (JSON as Go sees it), `gotypes` (decoded as in Go, because kubelet accepts what Go
accepts: names in any letter case, unknown fields, a field given twice), `statefile` (the verdict) and `reader` (our
states). checkpoint-verify reads all of kubelet's files with the first two, and takes its verdict about this one
from the third. Nothing here touches a file.
"""

from __future__ import annotations

from .healthfile import KubeletDeviceHealth, KubeletHealthState, read_dra_health_state
from .reader import KubeletDRAState, read_dra_manager_state
from .writer import write_dra_manager_state

__all__ = [
    "KubeletDRAState",
    "KubeletDeviceHealth",
    "KubeletHealthState",
    "read_dra_health_state",
    "read_dra_manager_state",
    "write_dra_manager_state",
]
