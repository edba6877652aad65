"""What a running plugin holds: lists it, by claim or by pod, and releases orphans, by hand or by itself."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

import grpc

from .. import ClaimInfo, ClaimInfoCache, ClaimPreparer, DRAError
from ..aio import AsyncClaimPreparer
from ._wire import GET_POD_RESOURCES, LIST_CLAIMS, LIST_POD_RESOURCES, RELEASE_CLAIM, Handlers, Method

SECONDS = 60.0  # the plugin may have to ask the API server for every claim
SOON_SECONDS = 5.0  # until the next review, if the API server did not answer
LOOK_SECONDS = 60.0  # between two reviews: each asks the API server for every claim


@dataclass(frozen=True, slots=True)
class HeldClaim:
    """One claim that holds devices."""

    uid: str
    namespace: str
    name: str
    phase: str  # preparing, prepared or unpreparing
    devices: tuple[str, ...]
    pods: tuple[str, ...]  # by name, or by UID if the name is not known
    orphan: str  # why it is one, or ""
    unknown: str  # why its state cannot be trusted, or ""


class HeldClaims:
    """What the plugin on a socket holds. Calls block, and raise DRAError if it does not answer."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._channel = grpc.insecure_channel(f"unix:{path}")

    def list(self) -> tuple[HeldClaim, ...]:
        """All claims that hold devices; it looks for orphans first."""
        reply = self._call(LIST_CLAIMS, LIST_CLAIMS.request())
        return tuple(
            HeldClaim(c.uid, c.namespace, c.name, c.phase, tuple(c.devices), tuple(c.pods), c.orphan, c.unknown)
            for c in reply.claims
        )

    def release(self, uid: str, *, force: bool = False) -> str:
        """Tear a claim down that kubelet will not unprepare. Returns the error, "" for success."""
        return str(self._call(RELEASE_CLAIM, RELEASE_CLAIM.request(uid=uid, force=force)).error)

    def close(self) -> None:
        """Close the connection."""
        self._channel.close()

    def __enter__(self) -> HeldClaims:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _call(self, method: Method, request: Any) -> Any:
        try:
            return method.on(self._channel.unary_unary)(request, timeout=SECONDS)
        except grpc.RpcError as error:
            raise DRAError(f"{self._path}: the agent does not answer: {error.details()}") from error


async def watch_orphans(preparer: AsyncClaimPreparer, release_after: float | None) -> None:
    """Runs while the agent serves. Releases orphans known for `release_after` seconds, or never if that is None."""
    period = LOOK_SECONDS if release_after is None else min(LOOK_SECONDS, max(release_after, 1.0))
    while True:
        for uid, orphan in (await preparer.review()).items():
            if release_after is not None and orphan.age >= release_after:
                await preparer.release(uid)
        await asyncio.sleep(min(period, SOON_SECONDS) if preparer.preparer.review.incomplete else period)


class HeldClaimsService:
    """Served on the plugin's own socket, which only root can reach."""

    def __init__(self, preparer: AsyncClaimPreparer) -> None:
        self._preparer = preparer

    def handlers(self) -> Handlers:
        return {
            LIST_CLAIMS.path: LIST_CLAIMS.unary(self._list),
            RELEASE_CLAIM.path: RELEASE_CLAIM.unary(self._release),
        }

    async def _list(self, request: object, context: object) -> Any:
        await self._preparer.review()
        claims = sorted(self._preparer.preparer.cache, key=lambda claim: (claim.name, claim.uid))
        return LIST_CLAIMS.reply(claims=map(self._described, claims))

    async def _release(self, request: Any, context: object) -> Any:
        return RELEASE_CLAIM.reply(error=await self._preparer.release(request.uid, force=request.force))

    def _described(self, claim: ClaimInfo) -> dict[str, Any]:
        preparer = self._preparer.preparer
        held, orphan = claim.held(preparer.hooks.driver), preparer.review.orphans.get(claim.uid)
        return {
            "uid": claim.uid,
            "name": claim.state.claim_name,
            "namespace": claim.state.namespace,
            "phase": str(held.phase or ""),
            "devices": [device.device_name for device in held.devices],
            "pods": sorted(claim.annotations.get(uid, uid) for uid in claim.state.pod_uids),
            "orphan": orphan.why if orphan else "",
            "unknown": why_unknown(claim.uid, claim.unknown, preparer),
        }


def why_unknown(uid: str, reason: str, preparer: ClaimPreparer) -> str:
    """Why the state of a claim cannot be trusted, and why it was not healed; "" if it can be trusted."""
    return "; not written anew: ".join(filter(None, [reason, preparer.review.unhealed.get(uid)]))


class PodResourcesService:
    """Which pod uses which device, from memory and in the terms of kubelet's PodResources service.

    The agent knows pods from the claims that are reserved for them: by UID, and by name once this process has looked up
    the claim; until then the UID replaces the name. It knows nothing about containers: all devices of a pod are listed
    under one container without a name.
    """

    def __init__(self, cache: ClaimInfoCache) -> None:
        self._cache = cache

    def handlers(self) -> Handlers:
        return {
            LIST_POD_RESOURCES.path: LIST_POD_RESOURCES.unary(self._list),
            GET_POD_RESOURCES.path: GET_POD_RESOURCES.unary(self._get),
        }

    async def _list(self, request: object, context: object) -> Any:
        return LIST_POD_RESOURCES.reply(pod_resources=[self._pod(uid) for uid in sorted(self._cache.pods())])

    async def _get(self, request: Any, context: grpc.aio.ServicerContext[Any, Any]) -> Any:
        for uid in self._cache.pods():
            pod = self._pod(uid)
            if (pod.name, pod.namespace) == (request.pod_name, request.pod_namespace):
                return GET_POD_RESOURCES.reply(pod_resources=pod)
        pod_name = f"{request.pod_namespace}/{request.pod_name}"
        return await context.abort(grpc.StatusCode.NOT_FOUND, f"no devices of pod {pod_name}")

    def _pod(self, uid: str) -> Any:
        claims = [claim for claim in self._cache.of_pod(uid) if not claim.unknown]
        name = next((claim.annotations[uid] for claim in claims if uid in claim.annotations), uid)
        namespace = claims[0].state.namespace if claims else ""
        container = {"dynamic_resources": list(map(_dynamic_resource, claims))}
        reply = GET_POD_RESOURCES.reply(pod_resources={"name": name, "namespace": namespace, "containers": [container]})
        return reply.pod_resources


def _dynamic_resource(claim: ClaimInfo) -> dict[str, Any]:
    devices = [
        {
            "driver_name": driver,
            "pool_name": device.pool_name,
            "device_name": device.device_name,
            "cdi_devices": [{"name": cdi} for cdi in device.cdi_device_ids],
            "share_id": device.share_id,
        }
        for driver, state in sorted(claim.state.driver_states.items())
        for device in state.devices
    ]
    return {
        "claim_name": claim.state.claim_name,
        "claim_namespace": claim.state.namespace,
        "claim_resources": devices,
    }
