"""The data of the benchmark: claims of about 800 bytes, as JSON data and as our typed state."""

from __future__ import annotations

import random
from typing import Any

from draState import ClaimInfoState, Device, DriverState


def key_of(number: int) -> str:
    return f"0c9f{number:08x}-5d3a-4c1e-9b7f-2a6e8d104c57"


def claim(number: int, change: int = 0) -> ClaimInfoState:
    """Claim `number` after change number `change`: every change writes different bytes of the same length."""
    uid = key_of(number)
    devices = tuple(
        Device("node-17", f"gpu-{slot}", None, (f"request-{slot}",), (f"example.com/gpu=claim-{uid}-gpu-{slot}",))
        for slot in range(3)
    )
    pods = frozenset({f"7d11{change:08x}-77aa-4f0e-8c55-0123{number:08x}"})
    return ClaimInfoState(uid, f"claim-{number:06}", "training", pods, {"gpu.example.com": DriverState(devices)})


def as_json(state: ClaimInfoState) -> dict[str, Any]:
    """The same content for contenders that store plain data."""
    return {
        "claim_uid": state.claim_uid,
        "claim_name": state.claim_name,
        "namespace": state.namespace,
        "pod_uids": sorted(state.pod_uids),
        "driver_states": {
            name: {
                "devices": [
                    {
                        "pool_name": device.pool_name,
                        "device_name": device.device_name,
                        "share_id": device.share_id,
                        "request_names": list(device.request_names),
                        "cdi_device_ids": list(device.cdi_device_ids),
                    }
                    for device in driver.devices
                ],
                "skipped_operations": list(driver.skipped_operations),
            }
            for name, driver in state.driver_states.items()
        },
    }


def random_numbers(count: int, among: int, seed: int) -> list[int]:
    chance = random.Random(seed)
    return [chance.randrange(among) for _ in range(count)]
