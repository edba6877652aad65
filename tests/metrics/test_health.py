"""How many devices are healthy."""

from __future__ import annotations

from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry

from draState.metrics import HealthMetrics

from ..draState.health import GPU, NIC, UNHEALTHY, HealthNode, device
from ..draState.stores import no_space


def test_devices_are_counted_by_driver_and_health(tmp_path: Path) -> None:
    registry = CollectorRegistry()
    node = HealthNode(tmp_path)
    HealthMetrics(node.store, registry)
    node.report(device("a"), device("b", UNHEALTHY), device("c", timeout=60))
    node.report(device("n"), driver=NIC)

    def counts(driver: str) -> list[float | None]:
        name = "dra_devices_by_health"
        labels = [{"driver_name": driver, "health": health} for health in ("Healthy", "Unhealthy", "Unknown")]
        return [registry.get_sample_value(name, each) for each in labels]

    assert (counts(GPU), counts(NIC)) == ([2, 1, 0], [1, 0, 0])
    node.time += 31
    assert (counts(GPU), counts(NIC)) == ([1, 0, 0], [None] * 3)
    node.store.close()


def test_what_was_not_kept_is_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("draState._health.store.MOST_DEVICES", 1)
    registry = CollectorRegistry()
    node = HealthNode(tmp_path)
    HealthMetrics(node.store, registry)
    node.disk.fail("store", no_space(GPU))
    node.report(device("a"), device("b"), device("c"))
    assert registry.get_sample_value("dra_devices_health_ignored", {"driver_name": GPU}) == 2
    assert registry.get_sample_value("dra_devices_health_unsaved", {"driver_name": GPU}) == 1
    node.disk.work_again()
    node.report(device("a"))
    assert registry.get_sample_value("dra_devices_health_ignored", {"driver_name": GPU}) is None
    assert registry.get_sample_value("dra_devices_health_unsaved", {"driver_name": GPU}) is None
    node.store.close()
