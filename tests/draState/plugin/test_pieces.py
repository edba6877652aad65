"""The pieces of `serve` one by one, as a framework with an agent of its own would use them."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from checkpointmanager import DirectoryLocked
from draState import ClaimRef, DriverClaim, DriverHooks, read_allocation
from draState.aio import AsyncClaimPreparer
from draState.plugin import (
    ApiServer,
    Credentials,
    Device,
    Inventory,
    PluginService,
    Publisher,
    RegistrationService,
    SocketServer,
)
from draState.plugin.rehearsal import Claim, Kubelet, LocalApiServer

from ...dra_agent.conversation import until

DRIVER = "nic.example.com"
# The connections of threads that have ended are closed by the garbage collector.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")


class NicHooks(DriverHooks):
    driver = DRIVER

    def __init__(self, server: ApiServer) -> None:
        self._server = server

    def look_up(self, ref: ClaimRef) -> DriverClaim:
        return read_allocation(ref, self._server.claim(ref.namespace, ref.name), self.driver)

    def set_up(self, claim: DriverClaim) -> DriverClaim:
        ready = (replace(device, cdi_device_ids=(f"{DRIVER}/nic={device.device_name}",)) for device in claim.devices)
        return replace(claim, devices=tuple(ready))

    def tear_down(self, claim: DriverClaim) -> None:
        pass


@pytest.fixture
def folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="dra-", dir="/tmp") as folder:
        yield Path(folder)


@pytest.fixture
def cluster() -> Iterator[LocalApiServer]:
    with LocalApiServer() as cluster:
        yield cluster


def api_server(cluster: LocalApiServer) -> ApiServer:
    return ApiServer(Credentials("127.0.0.1", int(cluster.address.rpartition(":")[2])), 2)


def test_kubelet_is_offered_only_what_the_socket_serves(cluster: LocalApiServer, folder: Path) -> None:
    cluster.allocate("u1", "claim-u1", ["eth1"], driver=DRIVER, pool="node-1", pods=["p1"])

    async def main() -> None:
        server = api_server(cluster)
        publisher = Publisher(server, "node-1", lambda: Inventory(DRIVER, "node-1", (Device("eth1"),)))
        async with await AsyncClaimPreparer.open(folder / "claims", NicHooks(server)) as preparer:
            service = PluginService(preparer)
            dra = SocketServer(str(folder / "dra.sock"), service.handlers())
            registration = RegistrationService(DRIVER, dra.path, service.services, publisher.registered)
            registry = SocketServer(str(folder / "r" / f"{DRIVER}-reg.sock"), registration.handlers())
            publishing = asyncio.create_task(publisher.run())
            for each in (dra, registry):
                await each.start()
            async with Kubelet(str(folder / "r"), DRIVER) as kubelet:
                info = await kubelet.register()
                assert list(info.supported_versions) == ["v1.DRAPlugin", "v1beta1.DRAPlugin"]
                (device,) = (await kubelet.prepare(Claim("u1", "claim-u1")))["u1"].devices
                assert device.cdi_device_ids == (f"{DRIVER}/nic=eth1",)
            assert registration.registered
            await asyncio.to_thread(until, lambda: len(cluster.slices()) == 1)
            publishing.cancel()
            for each in (registry, dra):
                await each.stop(1)

    asyncio.run(main())


def test_one_object_has_the_claims_and_one_close_frees_the_directory(cluster: LocalApiServer, tmp_path: Path) -> None:
    cluster.allocate("u1", "claim-u1", ["eth1"], driver=DRIVER, pool="node-1", pods=["p1"])
    ref = ClaimRef("u1", "claim-u1", "default")

    async def main() -> None:
        hooks = NicHooks(api_server(cluster))
        async with await AsyncClaimPreparer.open(tmp_path, hooks) as preparer:
            assert not (await preparer.prepare([ref]))["u1"].error
            with pytest.raises(DirectoryLocked):
                await AsyncClaimPreparer.open(tmp_path, hooks)
        await preparer.close()  # once more does nothing
        cluster.go_down()
        async with await AsyncClaimPreparer.open(tmp_path, hooks, look_up_seconds=1) as preparer:
            assert len(preparer.preparer.cache) == 1
            assert await preparer.unprepare([ref]) == {"u1": ""}

    asyncio.run(main())


def test_the_library_without_the_plugin_needs_no_grpc() -> None:
    program = "import sys, json, draState, draState.aio; print(json.dumps([*sys.modules]))"
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    loaded = {name.partition(".")[0] for name in json.loads(run.stdout)}
    assert not loaded & {"grpc", "google", "prometheus_client", "yaml"}
