"""Kubelet's own state files, read and judged as kubelet itself would.

`draState.kubelet` parses and decodes a file the way Go does, because kubelet's verdict depends on Go's rules for letter
case, repeated members and nulls. `inspect` recognises the file, and the module of that file judges it: `cpu`, `memory`,
`devices`, `pods` and `nvidia` hash what `checksum` makes of it; `dra` takes its verdict from draState, so an import
agrees. NVIDIA's driver is not kubelet, but its file is in the same place.

The verdict agrees with kubelet even where kubelet is wrong: a file that it loads although it should not is
valid, with a warning. A file without a checksum, or with an unknown one, is unknown, never damaged.

    >>> from checkpoint_verify.kubelet import inspect
    >>> found = inspect(b"{}", "dra_manager_state")
    >>> str(found.verdict), found.loads_in["1.36"], found.warnings[0][:21]
    ('valid', True, 'The file has no Data:')
"""

from __future__ import annotations

from .dra import NO_CHECKSUM
from .inspection import inspect
from .verdict import (
    DEVICE_PLUGINS,
    DRA,
    KNOWN_NAMES,
    KUBELET_NAMES,
    NEWEST,
    NVIDIA,
    KubeletFile,
    Verdict,
    kind_at,
    parse_version,
    version_name,
)

__all__ = [
    "DEVICE_PLUGINS",
    "DRA",
    "KNOWN_NAMES",
    "KUBELET_NAMES",
    "NEWEST",
    "NO_CHECKSUM",
    "NVIDIA",
    "KubeletFile",
    "Verdict",
    "inspect",
    "kind_at",
    "parse_version",
    "version_name",
]
