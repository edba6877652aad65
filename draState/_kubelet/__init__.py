"""Kubelet's own file of claims, `dra_manager_state`: read into our states, and written as kubelet writes it.

`dra_health_state`, the health of devices, is read only: drivers report anew within seconds.

Import and export are one line each:

    cache.put(*map(ClaimInfo, read_dra_manager_state(blob).claims))
    blob = write_dra_manager_state(claim.state for claim in cache if not claim.unknown)

Claims that are unknown have no state to export: kubelet would take a guess for the truth.

A file passes through `syntax` (JSON as Go sees it), `gotypes` (decoded as Go does it, because kubelet accepts what
that accepts: names in any letter case, fields that nobody knows, a field given twice), `statefile` (the verdict) and
`reader` (our states). checkpoint-verify reads all of kubelet's files with the first two, and takes its verdict about
this one from the third. Nothing here touches a file.
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
