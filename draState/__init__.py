"""What a DRA node agent remembers: claims, pods and devices, in memory and on disk.

A ClaimInfoCache is rebuilt from its files when the process starts, and a DRAManager prepares and unprepares
the claims of pods on it:

    cache = ClaimInfoCache("/var/lib/agent/claims")
    manager = DRAManager(cache, {"gpu.example.com": driver})
    manager.prepare_resources(pod)
    manager.get_resources(pod, "trainer").cdi_devices

A driver is a ClaimPreparer with hooks that set devices up and tear them down:

    preparer = ClaimPreparer(cache, hooks)
    preparer.restore()
    preparer.prepare([ClaimRef(uid, name, namespace)])

Pods and claims are read from the API server's objects by read_pod and read_allocation. The health that drivers
report is kept in a DeviceHealthStore.

A claim whose file is damaged costs itself and no other: it is there as unknown, its devices stay held.
README.md says what is persisted, what is not, and why.
"""

from ._apiclaim import read_allocation, read_resource_claim
from ._apipod import claim_names, read_pod
from ._claimcache import CacheReport, ClaimInfoCache
from ._claimevents import ClaimEvent, ClaimEventKind
from ._claiminfo import ClaimInfo
from ._claimpreparer import ClaimPreparer
from ._claimschema import CLAIMS
from ._claimstate import ClaimInfoState, ClaimPhase, Device, DriverState, NodeOperation, OpaqueConfig
from ._devicehealth import DEVICE_HEALTH, DeviceHealth, DriverHealth, Health
from ._dramanager import DRAManager
from ._driver import ClaimRef, Driver, Prepared
from ._driverclaim import DriverClaim
from ._driverhooks import DriverHooks
from ._errors import (
    ClaimConflict,
    ClaimGone,
    ClaimInUse,
    ClaimInvalid,
    ClaimNotPrepared,
    DeviceHeld,
    DRAError,
    KubeletStateInvalid,
    PrepareFailed,
    ReconcileRefused,
    UnprepareFailed,
)
from ._healthstore import DeviceHealthStore, HealthChange
from ._kubelet import (
    KubeletDeviceHealth,
    KubeletDRAState,
    KubeletHealthState,
    read_dra_health_state,
    read_dra_manager_state,
    write_dra_manager_state,
)
from ._orphans import Orphan
from ._pod import Allocation, ContainerClaim, Pod, ResourceClaim
from ._podconfig import POD_CONFIGS, DeviceConfig, PodConfig
from ._podconfigstore import PodConfigStore, PodSyncReport
from ._resourcehealth import ResourceHealth, ResourceStatus, concerned_pods, pod_health
from ._resources import ClaimResource, ContainerResources, DynamicResource, PodResources

__all__ = [
    "CLAIMS",
    "DEVICE_HEALTH",
    "POD_CONFIGS",
    "Allocation",
    "CacheReport",
    "ClaimConflict",
    "ClaimEvent",
    "ClaimEventKind",
    "ClaimGone",
    "ClaimInUse",
    "ClaimInfo",
    "ClaimInfoCache",
    "ClaimInfoState",
    "ClaimInvalid",
    "ClaimNotPrepared",
    "ClaimPhase",
    "ClaimPreparer",
    "ClaimRef",
    "ClaimResource",
    "ContainerClaim",
    "ContainerResources",
    "DRAError",
    "DRAManager",
    "Device",
    "DeviceConfig",
    "DeviceHealth",
    "DeviceHealthStore",
    "DeviceHeld",
    "Driver",
    "DriverClaim",
    "DriverHealth",
    "DriverHooks",
    "DriverState",
    "DynamicResource",
    "Health",
    "HealthChange",
    "KubeletDRAState",
    "KubeletDeviceHealth",
    "KubeletHealthState",
    "KubeletStateInvalid",
    "NodeOperation",
    "OpaqueConfig",
    "Orphan",
    "Pod",
    "PodConfig",
    "PodConfigStore",
    "PodResources",
    "PodSyncReport",
    "PrepareFailed",
    "Prepared",
    "ReconcileRefused",
    "ResourceClaim",
    "ResourceHealth",
    "ResourceStatus",
    "UnprepareFailed",
    "claim_names",
    "concerned_pods",
    "pod_health",
    "read_allocation",
    "read_dra_health_state",
    "read_dra_manager_state",
    "read_pod",
    "read_resource_claim",
    "write_dra_manager_state",
]
