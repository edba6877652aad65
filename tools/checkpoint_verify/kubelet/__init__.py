"""Kubelet's own state files, read and judged as kubelet itself would.

A file passes through four rooms. `draState._kubelet` parses and decodes it the way Go does, because kubelet's
verdict depends on Go's rules for letter case, repeated members and nulls. `recognise` says which file it is. One
module per file knows its forms: `cpu`, `memory`, `devices`, `pods` and `nvidia` hash what `dump` and `checksums`
make of them, `dra` takes its verdict from draState, so an import agrees, and `health` has nothing to verify.
`inspect` combines them into a KubeletFile. NVIDIA's driver is not kubelet, but its file is in the same place.

The verdict agrees with kubelet even where kubelet is wrong: a file that it loads although it should not is
valid, with a warning. A file without a checksum, or with an unknown one, is unknown, never damaged.

    >>> from checkpoint_verify.kubelet import inspect
    >>> found = inspect(b"{}", "dra_manager_state")
    >>> str(found.verdict), found.loads_in["1.36"], found.warnings[0][:21]
    ('valid', True, 'The file has no Data:')
"""

from __future__ import annotations

from .health import NO_CHECKSUM
from .inspection import inspect
from .nvidia import NVIDIA
from .recognise import DRA, KUBELET_NAMES
from .verdict import KubeletFile, Verdict

__all__ = ["DRA", "KUBELET_NAMES", "NO_CHECKSUM", "NVIDIA", "KubeletFile", "Verdict", "inspect"]
