"""The durable state of a DRA node agent: claims, pods and devices, in memory and on disk.

A ClaimInfoCache is rebuilt from its files when the process starts. A DRAManager uses it to prepare and unprepare
the claims of pods:

    cache = ClaimInfoCache("/var/lib/agent/claims")
    manager = DRAManager(cache, {"gpu.example.com": driver})
    manager.prepare_resources(pod)
    manager.get_resources(pod, "trainer").cdi_devices

A driver is a ClaimPreparer with hooks that set up and tear down devices:

    preparer = ClaimPreparer(cache, hooks)
    preparer.restore()
    preparer.prepare([ClaimRef(uid, name, namespace)])

read_pod and read_allocation read pods and claims from the API server's objects. A DeviceHealthStore keeps the
health that drivers report.

A damaged file affects only its own claim, which stays in the cache as unknown and keeps its devices.
README.md says what is persisted, what is not, and why.
"""

from ._apiobjects.claim import read_allocation, read_resource_claim
from ._apiobjects.pod import claim_names, read_pod
from ._claims.cache import CacheReport, ClaimInfoCache
from ._claims.info import ClaimInfo
from ._claims.state import CLAIMS, ClaimInfoState, ClaimPhase, Device, DriverState, NodeOperation, OpaqueConfig
from ._draplugin import ClaimRef, DRAPlugin, PrepareResult
from ._driver.claim import DriverClaim
from ._driver.events import ClaimEvent, ClaimEventKind
from ._driver.hooks import DriverHooks
from ._driver.preparer import ClaimPreparer
from ._driver.review import Orphan, Review
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
    ServerUnreachable,
    UnprepareFailed,
)
from ._health.device import DEVICE_HEALTH, DeviceHealth, DriverHealth, Health
from ._health.status import ResourceHealth, ResourceStatus, concerned_pods, pod_health
from ._health.store import DeviceHealthStore, HealthChange
from ._manager.manager import DRAManager
from ._manager.pod import Allocation, ContainerClaim, Pod, ResourceClaim
from ._manager.resources import ClaimResource, ContainerResources, DynamicResource, PodResources
from ._podconfigs.config import POD_CONFIGS, DeviceConfig, PodConfig
from ._podconfigs.store import PodConfigStore, PodSyncReport
from .kubelet._conversion import KubeletDRAState, read_dra_manager_state, write_dra_manager_state
from .kubelet._healthfile import KubeletDeviceHealth, KubeletHealthState, read_dra_health_state

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
    "DRAPlugin",
    "Device",
    "DeviceConfig",
    "DeviceHealth",
    "DeviceHealthStore",
    "DeviceHeld",
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
    "PrepareResult",
    "ReconcileRefused",
    "ResourceClaim",
    "ResourceHealth",
    "ResourceStatus",
    "Review",
    "ServerUnreachable",
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
