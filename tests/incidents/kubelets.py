"""Files that real kubelets wrote, and what kubelet makes of such files. Read here, before there is a pyfakefs."""

from __future__ import annotations

from checkpoint_verify.kubelet import KubeletFile, inspect
from tests.checkpoint_verify.kubelet.vectors import blob_of

PODS = blob_of("allocated_pods_state/one")
CLAIMS = blob_of("dra_manager_state/one")
CPUS_V3 = blob_of("cpu_manager_state/v3-several")
CPUS_V4 = blob_of("cpu_manager_state/v4-several")


def judged(blob: bytes, name: str) -> KubeletFile:
    found = inspect(blob, name)
    assert found is not None
    return found
