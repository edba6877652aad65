"""The bytes on the wire: paths, field numbers and types are the contract with kubelet. No message class of ours is used
here, only the bytes that a client of the published definitions sends and gets."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import grpc.aio
import pytest

from dra_agent.rehearsal import Node
from draState.plugin.rehearsal import LocalApiServer

from .conversation import until

PLUGIN = "/k8s.io.kubelet.pkg.apis.dra.{}.DRAPlugin/{}"
CLAIM = b"\x0a\x01n\x12\x01u\x1a\x01c"  # namespace, uid, name
REQUEST = b"\x0a" + bytes([len(CLAIM)]) + CLAIM


@pytest.fixture(scope="module")
def node() -> Iterator[Node]:
    """Its agent offers one device of each kind to the claim n/c."""
    with LocalApiServer() as cluster, Node(cluster.address, [{"name": "g"}, {"name": "h", "shared": True}]) as node:
        given: dict[str, Any] = {"driver": node.driver, "pool": node.pool, "namespace": "n", "request": "r"}
        cluster.allocate("u", "c", ["g"], **given)
        cluster.allocate("v", "d", ["h"], shareID="s", **given)
        node.start()
        yield node


def text(field: int, value: str) -> bytes:
    return bytes([field << 3 | 2, len(value)]) + value.encode()


def nested(field: int, *parts: bytes) -> bytes:
    content = b"".join(parts)
    return bytes([field << 3 | 2, len(content)]) + content


def ask(socket: str, path: str, request: bytes = b"") -> bytes:
    async def main() -> Any:
        async with grpc.aio.insecure_channel(f"unix:{socket}") as channel:
            call: Any = channel.unary_unary(path)
            return await call(request)

    return bytes(asyncio.run(main()))


def first(socket: str, path: str) -> bytes:
    async def main() -> Any:
        async with grpc.aio.insecure_channel(f"unix:{socket}") as channel:
            call: Any = channel.unary_stream(path)
            return await call(b"").read()

    return bytes(asyncio.run(main()))


def dra_socket(node: Node) -> str:
    return str(node.folder / "p" / "dra.sock")


def test_the_registration(node: Node) -> None:
    socket = f"{node.registry}/{node.driver}-reg.sock"
    services = ("v1.DRAPlugin", "v1beta1.DRAPlugin", "v1.DRAResourceHealth", "v1alpha1.DRAResourceHealth")
    info = text(1, "DRAPlugin") + text(2, node.driver) + text(3, dra_socket(node))
    assert ask(socket, "/pluginregistration.Registration/GetInfo") == info + b"".join(
        text(4, name) for name in services
    )
    status = "/pluginregistration.Registration/NotifyRegistrationStatus"
    assert ask(socket, status, b"\x08\x00" + text(2, "why")) == b""
    until(lambda: "kubelet refused the registration: why" in node.log)
    assert ask(socket, status, b"\x08\x01") == b""


@pytest.mark.parametrize("version", ["v1", "v1beta1"])
def test_claims_are_prepared_listed_and_unprepared(node: Node, version: str) -> None:
    cdi = f"{node.driver}/device=u-g"
    device = text(1, "r") + text(2, node.pool) + text(3, "g") + text(4, cdi)
    reply = ask(dra_socket(node), PLUGIN.format(version, "NodePrepareResources"), REQUEST)
    assert reply == nested(1, text(1, "u"), nested(2, nested(1, device)))

    listed = nested(1, text(1, cdi)) + text(2, node.driver) + text(3, node.pool) + text(4, "g")
    claim = text(2, "c") + text(3, "n") + nested(4, listed)
    pod = text(1, "pod-pod-of-u") + text(2, "n") + nested(3, nested(5, claim))
    assert ask(dra_socket(node), "/v1.PodResourcesLister/List") == nested(1, pod)
    named = text(1, "pod-pod-of-u") + text(2, "n")
    assert ask(dra_socket(node), "/v1.PodResourcesLister/Get", named) == nested(1, pod)

    reply = ask(dra_socket(node), PLUGIN.format(version, "NodeUnprepareResources"), REQUEST)
    assert reply == nested(1, text(1, "u"), nested(2))


def test_a_share_and_an_error(node: Node) -> None:
    shared = nested(1, text(1, "n"), text(2, "v"), text(3, "d"))
    reply = ask(dra_socket(node), PLUGIN.format("v1", "NodePrepareResources"), shared)
    assert text(5, "s") in reply
    assert text(5, "s") in ask(dra_socket(node), "/v1.PodResourcesLister/List")
    unnamed = ask(dra_socket(node), PLUGIN.format("v1", "NodePrepareResources"), nested(1, text(1, "n")))
    assert b"\x0a\x00" in unnamed, "the empty UID"
    assert b"UID of the claim is invalid" in unnamed
    empty = ask(dra_socket(node), PLUGIN.format("v1", "NodeUnprepareResources"), nested(1, text(1, "n")))
    assert b"UID of the claim is invalid" in empty


@pytest.mark.parametrize("version", ["v1", "v1alpha1"])
def test_the_health_of_devices(node: Node, version: str) -> None:
    report = first(dra_socket(node), f"/{version}.DRAResourceHealth/NodeWatchResources")
    device = nested(1, text(1, node.pool), text(2, "g"))
    assert device in report
    beginning, _, rest = report.partition(device)
    assert beginning[0] == 0x0A, "devices are field 1"
    assert rest[0] == 0x18, "its health is 0, unknown, which is not sent; field 3 is the time"
    assert b"\x20\x1e" + text(5, "the device has no device node to check") in rest, "30 seconds"
