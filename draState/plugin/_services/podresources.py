"""Reports which pod uses which device, in the terms of kubelet's PodResources service.

The agent knows pods from the claims that are reserved for them: by UID, and by name once this process has looked up
the claim; until then the UID replaces the name. It knows nothing about containers: all devices of a pod are listed
under one container without a name.
"""

from __future__ import annotations

from typing import Any

import grpc

from ... import ClaimInfo, ClaimInfoCache
from .draplugin import unary
from .wire import GET_POD_RESOURCES, LIST_POD_RESOURCES, POD_RESOURCES, Handlers


class PodResourcesService:
    """Answers from memory."""

    def __init__(self, cache: ClaimInfoCache) -> None:
        self._cache = cache

    def handlers(self) -> Handlers:
        return {
            LIST_POD_RESOURCES.path: unary(LIST_POD_RESOURCES, self._list),
            GET_POD_RESOURCES.path: unary(GET_POD_RESOURCES, self._get),
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
        container = POD_RESOURCES["ContainerResources"](dynamic_resources=map(_dynamic_resource, claims))
        namespace = claims[0].state.namespace if claims else ""
        return POD_RESOURCES["PodResources"](name=name, namespace=namespace, containers=[container])


def _dynamic_resource(claim: ClaimInfo) -> Any:
    resource = POD_RESOURCES["DynamicResource"](
        claim_name=claim.state.claim_name, claim_namespace=claim.state.namespace
    )
    for driver, state in sorted(claim.state.driver_states.items()):
        for device in state.devices:
            entry = resource.claim_resources.add(
                driver_name=driver, pool_name=device.pool_name, device_name=device.device_name
            )
            for cdi in device.cdi_device_ids:
                entry.cdi_devices.add(name=cdi)
            if device.share_id is not None:
                entry.share_id = device.share_id
    return resource
