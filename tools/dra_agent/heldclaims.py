"""The service behind `dra-agent claims` and `dra-agent release`: lists what is held, and releases it by hand."""

from __future__ import annotations

from typing import Any

import grpc

from draState import ClaimInfo
from draState.aio import AsyncClaimPreparer

from .plugin import unary
from .wire import LIST_CLAIMS, RELEASE_CLAIM


class HeldClaimsService:
    """Served on the plugin's own socket, which only root can reach."""

    def __init__(self, preparer: AsyncClaimPreparer) -> None:
        self._preparer = preparer

    def handlers(self) -> dict[str, grpc.RpcMethodHandler[Any, Any]]:
        return {
            LIST_CLAIMS.path: unary(LIST_CLAIMS, self._list),
            RELEASE_CLAIM.path: unary(RELEASE_CLAIM, self._release),
        }

    async def _list(self, request: object, context: object) -> Any:
        reply = LIST_CLAIMS.reply()
        preparer = self._preparer.preparer
        orphans = await self._preparer.review()
        for claim in sorted(preparer.cache, key=lambda claim: (claim.name, claim.uid)):
            orphan = orphans.get(claim.uid)
            described = _described(claim, preparer.hooks.driver, preparer.review.unhealed.get(claim.uid, ""))
            reply.claims.add(orphan=orphan.why if orphan else "", **described)
        return reply

    async def _release(self, request: Any, context: object) -> Any:
        return RELEASE_CLAIM.reply(error=await self._preparer.release(request.uid, force=request.force))


def _described(claim: ClaimInfo, driver: str, unhealed: str) -> dict[str, Any]:
    did = claim.state.driver_states.get(driver)
    return {
        "uid": claim.uid,
        "name": claim.state.claim_name,
        "namespace": claim.state.namespace,
        "phase": str(did.phase or "") if did else "",
        "devices": [device.device_name for device in did.devices] if did else [],
        "pods": sorted(claim.annotations.get(uid, uid) for uid in claim.state.pod_uids),
        "unknown": "; not written anew: ".join(filter(None, [claim.unknown, unhealed])),
    }
