"""Keeps the configs of each pod's devices on disk, below the plugin folder and by the pod's UID.

The claims are the truth; the configs follow them. A pod's configs are set after its claim was written as `preparing`
and before it is `prepared`; they are removed after it was written as `unpreparing` and before it is deleted. So the
step that a kill interrupted is completed when the claim is prepared, restored or unprepared again, and configs that
belong to no claim are removed at the next start.
"""

from __future__ import annotations

import logging

from checkpointmanager import CheckpointWriteFailed
from draState import ClaimInfoCache, DeviceConfig, DriverClaim, PodConfigStore

from .cdi import device_name
from .parameters import Parameters

logger = logging.getLogger("dra_agent")


class PodConfigs:
    """Claims without configs, which are most of them, cost nothing here. Safe for many threads."""

    def __init__(self, store: PodConfigStore) -> None:
        self.store = store

    def follow(self, claim: DriverClaim) -> None:
        """Give the claim's configs to every pod of the claim and to no other; durable when it returns."""
        wanted = _configs(claim)
        if not wanted:
            return  # it never had any: new configs mean a new allocation, and the old one is torn down first
        if any(uid not in claim.pods for uid in self._pods_with(claim.uid)):
            self.store.delete_claim(claim.uid)  # from all pods; they are set again below
        for pod in claim.pods:
            for device, config in wanted.items():
                if self.store.get_device_config(pod, device) != config:
                    self.store.set_device_config(pod, device, config)

    def forget(self, claim_uid: str) -> None:
        """Take the claim's configs from all pods, whatever is on disk. The next start removes a file that stays."""
        try:
            self.store.delete_claim(claim_uid)
        except CheckpointWriteFailed as error:
            logger.warning("claim %s: the configs of its pods stay on disk until the next start: %s", claim_uid, error)

    def synchronize(self, cache: ClaimInfoCache) -> None:
        """Drop configs that belong to no claim. Call this at a start, when the claims are restored.

        Does nothing while a claim is unknown, because its pods are unknown too.
        """
        if unknown := cache.report().unknown:
            logger.warning("not cleaning up the configs of pods while %d claims are unknown", len(unknown))
            return
        report = self.store.synchronize(cache.pods, complete=True)
        for uid in {uid for pod in self.store for uid in self._claims_of(pod)} - {claim.uid for claim in cache}:
            self.forget(uid)
        if report.removed:
            logger.info("dropped the configs of %d pods that no claim refers to", len(report.removed))
        for pod, why in {**report.problems, **report.failed}.items():
            logger.error("configs of pod %s: %s", pod, why)

    def details(self) -> dict[str, object]:
        """For /readyz."""
        return {"pods": len(self.store), "problems": dict(self.store.problems)}

    def _pods_with(self, claim_uid: str) -> list[str]:
        return [pod for pod in self.store if claim_uid in self._claims_of(pod)]

    def _claims_of(self, pod: str) -> set[str]:
        config = self.store.get_pod_config(pod)
        return {device.claim_uid for device in config.devices.values()} if config else set()


def _configs(claim: DriverClaim) -> dict[str, DeviceConfig]:
    """The configs by device, under the name that is unique in a pod; only devices that have a config."""
    configs = {}
    for device in claim.devices:
        if found := claim.configs_of(device):
            asked = Parameters.merged(found).as_dict()
            configs[device_name(claim.uid, device)] = DeviceConfig(asked, claim.uid, claim.name, claim.namespace)
    return configs
