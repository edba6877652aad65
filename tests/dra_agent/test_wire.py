"""The bytes on the wire: field numbers and types are the contract with kubelet."""

from __future__ import annotations

from typing import Any

import pytest

from draState.plugin import _wire as wire


@pytest.mark.parametrize("api", [wire.V1, wire.V1BETA1])
def test_a_claim_and_the_request_for_it(api: wire.DRAPluginApi) -> None:
    claim = api.Claim(namespace="n", uid="u", name="c")
    assert claim.SerializeToString() == b"\x0a\x01n\x12\x01u\x1a\x01c"
    assert api.prepare.request(claims=[claim]).SerializeToString() == b"\x0a\x09\x0a\x01n\x12\x01u\x1a\x01c"
    assert api.unprepare.request(claims=[claim]).SerializeToString() == b"\x0a\x09\x0a\x01n\x12\x01u\x1a\x01c"


@pytest.mark.parametrize("api", [wire.V1, wire.V1BETA1])
def test_a_device_with_and_without_a_share(api: wire.DRAPluginApi) -> None:
    device = api.Device(request_names=["r"], pool_name="p", device_name="d", cdi_device_ids=["i"])
    assert device.SerializeToString() == b"\x0a\x01r\x12\x01p\x1a\x01d\x22\x01i"
    assert not device.HasField("share_id")
    device.share_id = ""
    assert device.SerializeToString().endswith(b"\x2a\x00"), "optional: empty is not the same as absent"


def test_a_reply_is_a_map_by_claim() -> None:
    reply = wire.V1.prepare.reply()
    reply.claims["u"].error = "e"
    assert reply.SerializeToString() == b"\x0a\x08\x0a\x01u\x12\x03\x12\x01e"
    reply = wire.V1.unprepare.reply()
    reply.claims["u"].error = "e"
    assert reply.SerializeToString() == b"\x0a\x08\x0a\x01u\x12\x03\x0a\x01e"


def test_the_paths() -> None:
    assert wire.V1.prepare.path == "/k8s.io.kubelet.pkg.apis.dra.v1.DRAPlugin/NodePrepareResources"
    assert wire.V1.unprepare.path == "/k8s.io.kubelet.pkg.apis.dra.v1.DRAPlugin/NodeUnprepareResources"
    assert wire.V1BETA1.prepare.path == "/k8s.io.kubelet.pkg.apis.dra.v1beta1.DRAPlugin/NodePrepareResources"
    assert (wire.V1.version, wire.V1BETA1.version) == ("v1.DRAPlugin", "v1beta1.DRAPlugin")


@pytest.mark.parametrize("api", [wire.HEALTH_V1, wire.HEALTH_V1ALPHA1])
def test_the_health_of_a_device(api: wire.DRAResourceHealth) -> None:
    reply = api.watch.reply()
    reply.devices.add(
        device={"pool_name": "p", "device_name": "d"},
        health=2,
        last_updated_time=1 << 33,
        health_check_timeout_seconds=30,
        message="m",
    )
    health = b"\x0a\x06\x0a\x01p\x12\x01d\x10\x02\x18\x80\x80\x80\x80\x20\x20\x1e\x2a\x01m"
    assert reply.SerializeToString() == b"\x0a" + bytes([len(health)]) + health
    assert api.watch.request().SerializeToString() == b""


def test_the_paths_of_the_health_services_have_the_version_for_a_package() -> None:
    """As in Kubernetes' own files, where PodResources has the package v1 too."""
    assert wire.HEALTH_V1.watch.path == "/v1.DRAResourceHealth/NodeWatchResources"
    assert wire.HEALTH_V1ALPHA1.watch.path == "/v1alpha1.DRAResourceHealth/NodeWatchResources"
    assert wire.LIST_POD_RESOURCES.path == "/v1.PodResourcesLister/List"


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        (
            wire.GET_INFO.reply(type="t", name="n", endpoint="e", supported_versions=["v"]),
            b"\x0a\x01t\x12\x01n\x1a\x01e\x22\x01v",
        ),
        (wire.NOTIFY_STATUS.request(plugin_registered=True, error="e"), b"\x08\x01\x12\x01e"),
        (wire.GET_POD_RESOURCES.request(pod_name="a", pod_namespace="b"), b"\x0a\x01a\x12\x01b"),
        (
            wire.POD_RESOURCES["DynamicResource"](claim_name="a", claim_namespace="b", claim_resources=[{}]),
            b"\x12\x01a\x1a\x01b\x22\x00",
        ),
        (
            wire.POD_RESOURCES["ContainerResources"](name="a", dynamic_resources=[{}]),
            b"\x0a\x01a\x2a\x00",
        ),
        (
            wire.POD_RESOURCES["ClaimResource"](
                cdi_devices=[{"name": "x"}], driver_name="d", pool_name="p", device_name="v", share_id="s"
            ),
            b"\x0a\x03\x0a\x01x\x12\x01d\x1a\x01p\x22\x01v\x2a\x01s",
        ),
    ],
)
def test_other_messages(message: Any, expected: bytes) -> None:
    assert message.SerializeToString() == expected


def test_a_line_that_is_no_field_is_refused() -> None:
    with pytest.raises(ValueError, match="not a field"):
        wire.messages("test.package", {"Message": "string name"})
