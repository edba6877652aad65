"""Kubelet's dra_health_state: read where kubelet loads it, refused where kubelet logs an error."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pytest

from draState import Health, KubeletDeviceHealth, KubeletStateInvalid, read_dra_health_state

GPU = "gpu.example.com"
SECRET = "s3cret"
# As Go marshals it.
WRITTEN = (
    b'{"gpu.example.com":{"Devices":{"node-7/gpu-0":{"PoolName":"node-7","DeviceName":"gpu-0","Health":"Healthy",'
    b'"LastUpdated":"2026-11-16T08:15:30.123456789Z","HealthCheckTimeout":30000000000,"Message":""},'
    b'"rack/3/gpu-1":{"PoolName":"rack/3","DeviceName":"gpu-1","Health":"Unhealthy",'
    b'"LastUpdated":"2026-11-16T09:15:30+01:00","HealthCheckTimeout":1500000000,"Message":"ECC \\u003e 7"}}},'
    b'"nic.example.com":{"Devices":{}}}'
)


def of_device(key: str = "p/d", /, **fields: Any) -> bytes:
    return json.dumps({GPU: {"Devices": {key: {"PoolName": "p", "DeviceName": "d", **fields}}}}).encode()


def one(blob: bytes) -> KubeletDeviceHealth:
    ((device,),) = read_dra_health_state(blob).drivers.values()
    return device


def test_a_file_that_kubelet_wrote_is_read() -> None:
    state = read_dra_health_state(WRITTEN)
    at = datetime(2026, 11, 16, 8, 15, 30, tzinfo=UTC)
    assert state.drivers == {
        GPU: (
            KubeletDeviceHealth("node-7", "gpu-0", Health.HEALTHY, "", 30.0, at.replace(microsecond=123456)),
            KubeletDeviceHealth("rack/3", "gpu-1", Health.UNHEALTHY, "ECC > 7", 1.5, at),
        ),
        "nic.example.com": (),
    }
    assert state.warnings == ()
    assert "ECC" not in repr(state)


def test_a_file_cut_anywhere_is_refused() -> None:
    for blob in (*(WRITTEN[:size] for size in range(len(WRITTEN))), b"\0" * 100, b"{}{}", b"\xff", b"[}"):
        with pytest.raises(KubeletStateInvalid, match=r"^not a valid dra_health_state: the file is not JSON"):
            read_dra_health_state(blob)


@pytest.mark.parametrize(
    ("word", "health"),
    [
        ("Healthy", Health.HEALTHY),
        ("Unhealthy", Health.UNHEALTHY),
        ("Unknown", Health.UNKNOWN),
        ("", Health.UNKNOWN),
        ("healthy", Health.UNKNOWN),
        ("Other", Health.UNKNOWN),
        (None, Health.UNKNOWN),
    ],
)
def test_any_other_word_is_unknown(word: str | None, health: Health) -> None:
    assert one(of_device(Health=word)).health is health


@pytest.mark.parametrize(
    ("nanoseconds", "seconds"), [(0, 30.0), (None, 30.0), (12 * 10**9, 12.0), (1, 1e-9), (-(10**9), -1.0)]
)
def test_a_time_out_that_is_missing_is_the_default(nanoseconds: int | None, seconds: float) -> None:
    assert one(of_device(HealthCheckTimeout=nanoseconds)).timeout == seconds


@pytest.mark.parametrize(
    ("text", "at"),
    [
        ("2026-11-16T08:15:30Z", (2026, 11, 16, 8, 15, 30)),
        ("2026-11-16T08:15:30.5Z", (2026, 11, 16, 8, 15, 30, 500_000)),
        ("2026-11-16T08:15:30,25Z", (2026, 11, 16, 8, 15, 30, 250_000)),
        ("2026-11-16T8:15:30Z", (2026, 11, 16, 8, 15, 30)),
        ("2026-11-16T08:15:30-07:30", (2026, 11, 16, 15, 45, 30)),
        ("2026-11-16T08:15:30+24:00", (2026, 11, 15, 8, 15, 30)),
        ("2024-02-29T00:00:00Z", (2024, 2, 29)),
        ("0001-01-01T00:00:00Z", (1, 1, 1)),
        ("0000-02-29T00:00:00Z", (1, 1, 1)),
        ("0001-01-01T00:00:00+01:00", (1, 1, 1)),
        (None, (1, 1, 1)),
    ],
)
def test_a_time_is_what_go_accepts_as_one(text: str | None, at: tuple[int, ...]) -> None:
    assert one(of_device(LastUpdated=text)).last_updated == datetime(*at, tzinfo=UTC)  # type: ignore[arg-type,misc]


@pytest.mark.parametrize(
    "value",
    [
        *("", "yesterday", "2026-11-16", "2026-11-16 08:15:30Z", "2026-11-16T08:15:30", "2026-11-16t08:15:30z"),
        *("2026-13-16T08:15:30Z", "2026-02-29T08:15:30Z", "2026-11-16T24:15:30Z", "2026-11-16T08:15:60Z"),
        *("2026-11-16T08:15:30+25:00", "2026-11-16T08:15:30+01:61", 7, True, ["2026-11-16T08:15:30Z"], {}),
    ],
)
def test_a_time_that_go_refuses_is_refused(value: Any) -> None:
    with pytest.raises(KubeletStateInvalid, match=r"\.LastUpdated is not an RFC 3339 time"):
        read_dra_health_state(of_device(LastUpdated=value, Message=SECRET))


def test_a_time_with_escapes_is_refused_as_go_refuses_it() -> None:
    with pytest.raises(KubeletStateInvalid, match="is not an RFC 3339 time"):
        read_dra_health_state(of_device(LastUpdated="2026-11-16T08:15:30Z").replace(b"T08", rb"\u005408"))


@pytest.mark.parametrize(
    ("document", "error"),
    [
        ([SECRET], "the file is not an object"),
        (SECRET, "the file is not an object"),
        ({SECRET: [1]}, r"\[…\] is not an object"),
        ({SECRET: {"Devices": [1]}}, r"\[…\]\.Devices is not an object"),
        ({SECRET: {"Devices": {"a/b": SECRET}}}, r"\[…\]\.Devices\[…\] is not an object"),
        ({SECRET: {"Devices": {"a/b": {"PoolName": 7}}}}, "PoolName is not a string"),
        ({SECRET: {"Devices": {"a/b": {"Message": [SECRET]}}}}, "Message is not a string"),
        ({SECRET: {"Devices": {"a/b": {"HealthCheckTimeout": 1.5}}}}, "HealthCheckTimeout is not a signed integer"),
        ({SECRET: {"Devices": {"a/b": {"HealthCheckTimeout": 2**63}}}}, "HealthCheckTimeout is not a signed integer"),
        ({SECRET: {"Devices": {"a/b": {"HealthCheckTimeout": "30s"}}}}, "HealthCheckTimeout is not a signed integer"),
    ],
)
def test_another_shape_is_refused_without_showing_its_data(document: Any, error: str) -> None:
    with pytest.raises(KubeletStateInvalid, match=error) as caught:
        read_dra_health_state(json.dumps(document).encode())
    assert SECRET not in str(caught.value)


@pytest.mark.parametrize(
    ("blob", "warning"),
    [
        (b"null", "the file is null: kubelet loads it and crashes"),
        (b'{"a":{"Devices":null},"b":{},"c":null,"d":{"Devices":{}}}', "3 drivers have no Devices"),
        (of_device("nowhere"), "1 devices left out"),
        (of_device("q/d"), "1 devices have a name that differs"),
        (of_device(Color="red", Size=7), "2 unknown fields are left out"),
        (b'{"a":{"Devices":{"p/d":{"PoolName":"p","DeviceName":"x","DeviceName":"d"}}}}', "1 fields or keys occur"),
    ],
)
def test_what_kubelet_does_not_mind_yet_is_a_warning(blob: bytes, warning: str) -> None:
    (found,) = read_dra_health_state(blob).warnings
    assert warning in found


def test_the_key_names_the_device_and_a_device_without_one_is_left_out() -> None:
    assert one(of_device("a/b/c")).pool_name == "a/b"
    assert read_dra_health_state(of_device("nowhere")).drivers == {GPU: ()}
    assert read_dra_health_state(b"null").drivers == {}
    assert read_dra_health_state(b"{}").drivers == {}


def test_names_of_fields_are_found_in_any_letter_case() -> None:
    blob = of_device(Health="Healthy").replace(b'"Health"', b'"HEALTH"').replace(b'"Devices"', b'"devices"')
    assert one(blob).health is Health.HEALTHY
