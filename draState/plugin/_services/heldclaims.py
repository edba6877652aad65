"""Lists what a running plugin holds, and releases it by hand: the service, and its client for commands."""

from __future__ import annotations

from dataclasses import dataclass
from types import TracebackType
from typing import Any

import grpc

from ... import ClaimInfo, DRAError
from ...aio import AsyncClaimPreparer
from .draplugin import unary
from .wire import LIST_CLAIMS, RELEASE_CLAIM, Handlers, Method

SECONDS = 60.0  # the plugin may have to ask the API server for every claim


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
            HeldClaim(
                each.uid,
                each.namespace,
                each.name,
                each.phase,
                tuple(each.devices),
                tuple(each.pods),
                each.orphan,
                each.unknown,
            )
            for each in reply.claims
        )

    def release(self, uid: str, *, force: bool = False) -> str:
        """Tear a claim down that kubelet will not unprepare. Returns the error, "" for success."""
        return str(self._call(RELEASE_CLAIM, RELEASE_CLAIM.request(uid=uid, force=force)).error)

    def close(self) -> None:
        """Close the connection."""
        self._channel.close()

    def __enter__(self) -> HeldClaims:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _call(self, method: Method, request: Any) -> Any:
        call = self._channel.unary_unary(
            method.path,
            request_serializer=method.request.SerializeToString,
            response_deserializer=method.reply.FromString,
        )
        try:
            return call(request, timeout=SECONDS)
        except grpc.RpcError as error:
            raise DRAError(f"{self._path}: the agent does not answer: {error.details()}") from error


class HeldClaimsService:
    """Served on the plugin's own socket, which only root can reach."""

    def __init__(self, preparer: AsyncClaimPreparer) -> None:
        self._preparer = preparer

    def handlers(self) -> Handlers:
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
    held = claim.held(driver)
    return {
        "uid": claim.uid,
        "name": claim.state.claim_name,
        "namespace": claim.state.namespace,
        "phase": str(held.phase or ""),
        "devices": [device.device_name for device in held.devices],
        "pods": sorted(claim.annotations.get(uid, uid) for uid in claim.state.pod_uids),
        "unknown": "; not written anew: ".join(filter(None, [claim.unknown, unhealed])),
    }
