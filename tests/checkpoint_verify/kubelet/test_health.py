"""dra_health_state: parsed, and called unverified, since it has no checksum."""

from __future__ import annotations

import json

import pytest

from checkpoint_verify.kubelet import NO_CHECKSUM, Verdict, inspect

NAME = "dra_health_state"
DEVICE = {
    "PoolName": "node-1",
    "DeviceName": "gpu-0",
    "Health": "Healthy",
    "LastUpdated": "2026-11-16T08:15:30.123456Z",
    "Message": "",
    "HealthCheckTimeout": 30_000_000_000,
}


def state(**changes: object) -> bytes:
    return json.dumps({"gpu.example.com": {"Devices": {"node-1/gpu-0": DEVICE | changes}}}).encode()


@pytest.mark.parametrize("health", ["Healthy", "Unhealthy", "Unknown"])
@pytest.mark.parametrize("name", [NAME, "a copy"])
def test_it_is_known_by_its_content_and_unverified(health: str, name: str) -> None:
    found = inspect(state(Health=health), name)

    assert found
    assert (found.kind, found.verdict, found.reason) == (NAME, Verdict.UNKNOWN, NO_CHECKSUM)
    assert (found.loads_in["1.37"], found.loads_in["1.36"]) == (True, None)
    assert found.data["gpu.example.com"]["Devices"]["node-1/gpu-0"]["Health"] == health


@pytest.mark.parametrize("blob", [b"{}", b"null", b'{"d":{}}', b'{"d":{"Devices":null}}'])
def test_by_its_name_where_the_content_is_ambiguous(blob: bytes) -> None:
    found = inspect(blob, NAME)

    assert found
    assert (found.kind, found.verdict) == (NAME, Verdict.UNKNOWN)
    assert inspect(blob, "x.json") is None


@pytest.mark.parametrize(
    "blob",
    [
        b"",
        b"\0" * 100,
        b"[]",
        state()[:-1],
        state(PoolName=7),
    ],
)
def test_what_kubelet_cannot_parse_is_damaged(blob: bytes) -> None:
    found = inspect(blob, NAME)

    assert found
    assert (found.kind, found.verdict, found.loads_in["1.37"]) == (NAME, Verdict.DAMAGED, False)


def test_a_broken_copy_is_known_by_how_it_begins() -> None:
    found = inspect(state()[:-5], "a copy")

    assert found
    assert (found.kind, found.verdict) == (NAME, Verdict.DAMAGED)
