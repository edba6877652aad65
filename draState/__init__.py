"""What a DRA node agent remembers: claims, pods and devices, in memory and on disk.

A ClaimInfoCache is rebuilt from its files when the process starts, and a DRAManager prepares and unprepares
the claims of pods on it:

    cache = ClaimInfoCache("/var/lib/agent/claims")
    manager = DRAManager(cache, {"gpu.example.com": driver})
    manager.prepare_resources(pod)
    manager.get_resources(pod, "trainer").cdi_devices

A claim whose file is damaged costs itself and no other: it is there as unknown, its devices stay held.
README.md says what is persisted, what is not, and why.
"""

from ._claimcache import CacheReport, ClaimInfoCache
from ._claiminfo import ClaimInfo
from ._claimschema import CLAIMS
from ._claimstate import ClaimInfoState, Device, DriverState, NodeOperation
from ._dramanager import DRAManager
from ._driver import ClaimRef, Driver, Prepared
from ._errors import (
    ClaimConflict,
    ClaimInvalid,
    ClaimNotPrepared,
    DRAError,
    KubeletStateInvalid,
    PrepareFailed,
    ReconcileRefused,
    UnprepareFailed,
)
from ._kubelet import KubeletDRAState, read_dra_manager_state, write_dra_manager_state
from ._pod import Allocation, ContainerClaim, Pod, ResourceClaim
from ._podconfig import POD_CONFIGS, DeviceConfig, PodConfig
from ._podconfigstore import PodConfigStore, PodSyncReport
from ._resources import ClaimResource, ContainerResources, DynamicResource, PodResources

__all__ = [
    "CLAIMS",
    "POD_CONFIGS",
    "Allocation",
    "CacheReport",
    "ClaimConflict",
    "ClaimInfo",
    "ClaimInfoCache",
    "ClaimInfoState",
    "ClaimInvalid",
    "ClaimNotPrepared",
    "ClaimRef",
    "ClaimResource",
    "ContainerClaim",
    "ContainerResources",
    "DRAError",
    "DRAManager",
    "Device",
    "DeviceConfig",
    "Driver",
    "DriverState",
    "DynamicResource",
    "KubeletDRAState",
    "KubeletStateInvalid",
    "NodeOperation",
    "Pod",
    "PodConfig",
    "PodConfigStore",
    "PodResources",
    "PodSyncReport",
    "PrepareFailed",
    "Prepared",
    "ReconcileRefused",
    "ResourceClaim",
    "UnprepareFailed",
    "read_dra_manager_state",
    "write_dra_manager_state",
]
