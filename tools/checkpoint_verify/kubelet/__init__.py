"""Kubelet's own state files, read and judged as kubelet itself would do it, with the standard library alone.

A file passes through four rooms. `recognise` tells which file it is. `syntax` and `gojson` decode it the
way Go does, since kubelet's verdict hangs on Go's rules for letter case, repeated members and nulls.
One module a file (`cpu`, `memory`, `devices`, `dra`, `pods`) knows its forms, and hashes what `dump` and
`checksums` make of them. `inspect` puts it together into a KubeletFile.

The verdict agrees with kubelet also where kubelet is wrong: a file that it loads although it should not
is valid, with a warning. A form whose checksum algorithm is not known is unknown, never damaged.

    >>> from checkpoint_verify.kubelet import inspect
    >>> found = inspect(b"{}", "dra_manager_state")
    >>> str(found.verdict), found.loads_in["1.36"], found.warnings[0][:21]
    ('valid', True, 'The file has no Data:')
"""

from __future__ import annotations

from .inspection import inspect
from .recognise import KUBELET_NAMES
from .verdict import KubeletFile, Verdict

__all__ = ["KUBELET_NAMES", "KubeletFile", "Verdict", "inspect"]
