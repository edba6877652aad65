"""The configs of each pod's devices, kept on disk below the plugin folder and by the pod's UID.

The claims are the truth; the configs follow them. A pod's configs are set after its claim was written as `preparing`
and before it is `prepared`; they are removed after it was written as `unpreparing` and before it is deleted. So the
step that a kill interrupted is completed when the claim is prepared, restored or unprepared again, and configs that
belong to no claim are removed at the next start.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from checkpointmanager import CheckpointWriteFailed

from .. import ClaimInfoCache, Device, DriverClaim, PodConfigStore

logger = logging.getLogger("draState.plugin")


def key(device: Device) -> str:
    """The name of a device in the store."""
    return "-".join(filter(None, [device.device_name, device.share_id]))


def follow(store: PodConfigStore, claim: DriverClaim, configs: Mapping[str, Any]) -> None:
    """Give the claim's configs to its pods; only devices that have a config."""
    if configs:  # a claim without any never had any: others would be another allocation
        store.follow(claim, configs)


def forget(store: PodConfigStore, claim_uid: str) -> None:
    """Take the claim's configs from all pods, whatever is on disk. The next start removes a file that stays."""
    try:
        store.delete_claim(claim_uid)
    except CheckpointWriteFailed as error:
        logger.warning("claim %s: the configs of its pods stay on disk until the next start: %s", claim_uid, error)


def synchronize(store: PodConfigStore, claims: ClaimInfoCache) -> None:
    """Drop configs that belong to no claim, and log what could not be dropped."""
    try:
        report = store.follow_claims(claims)
    except CheckpointWriteFailed as error:
        logger.error("configs of pods: %s", error)
        return
    if report is None:
        logger.warning("not cleaning up the configs of pods while %d claims are unknown", len(claims.report().unknown))
        return
    if report.removed:
        logger.info("dropped the configs of %d pods that no claim refers to", len(report.removed))
    for pod, why in {**report.problems, **report.failed}.items():
        logger.error("configs of pod %s: %s", pod, why)
