"""What is counted and logged about kubelet's calls."""

from __future__ import annotations

import asyncio
import json
import logging
import platform
import re

import pytest
from prometheus_client import CollectorRegistry

from checkpointmanager import __version__
from dra_agent.rehearsal import Node
from draState.plugin._services.calls import BUCKETS, KUBELET_BUCKETS, Calls
from draState.plugin._services.wire import HEALTH_V1, V1
from draState.plugin.rehearsal import Claim, Kubelet, LocalApiServer

from .conversation import claim_for, talk, until

DRIVER = "gpu.example.com"
PATH = V1.prepare.path


def operations(registry: CollectorRegistry, is_error: str) -> float | None:
    labels = {"operation_name": "PrepareResources", "is_error": is_error}
    return registry.get_sample_value("dra_operations_duration_seconds_count", labels)


def grpc_calls(registry: CollectorRegistry, status: str) -> float | None:
    labels = {"driver_name": DRIVER, "method_name": PATH, "grpc_status_code": status}
    return registry.get_sample_value("dra_grpc_operations_duration_seconds_count", labels)


def test_a_call_in_which_a_claim_failed_is_a_failed_operation_but_a_good_grpc_call() -> None:
    registry = CollectorRegistry()
    calls = Calls(DRIVER, registry)
    with calls.call(PATH, ["a", "b"]):
        pass
    with calls.call(PATH, ["a", "b"]) as call:
        call.failed.append("b")
    assert (operations(registry, "false"), operations(registry, "true")) == (1, 1)
    assert grpc_calls(registry, "OK") == 2


@pytest.mark.parametrize(("error", "status"), [(asyncio.CancelledError, "Canceled"), (RuntimeError, "Unknown")])
def test_a_call_without_an_answer_is_an_error_of_both(error: type[BaseException], status: str) -> None:
    registry = CollectorRegistry()
    with pytest.raises(error), Calls(DRIVER, registry).call(PATH, ["a"]):
        raise error
    assert (operations(registry, "true"), grpc_calls(registry, status)) == (1, 1)


def test_kubelets_buckets_are_among_ours() -> None:
    assert [round(KUBELET_BUCKETS[n], 3) for n in (0, 1, 7, 14)] == [0.1, 0.153, 2.0, 40.0]
    assert sorted(BUCKETS) == list(BUCKETS)


def test_each_call_is_logged_with_an_id_its_claims_its_outcome_and_its_time(caplog: pytest.LogCaptureFixture) -> None:
    calls = Calls(DRIVER, CollectorRegistry())
    with caplog.at_level(logging.DEBUG, "draState.plugin.calls"):
        for _ in range(2):
            with calls.call(PATH, ["a", "b"]) as call:
                call.failed.append("b")
    lines = [record.getMessage() for record in caplog.records]
    ids = [re.findall(r"^call ([0-9a-f]{8}): NodePrepareResources of a, b", line)[0] for line in lines]
    assert ids[0] == ids[1] != ids[2] == ids[3]
    assert re.search(r"of a, b: OK, failed: b, [0-9.]+ s$", lines[1])


def test_an_agent_logs_the_calls_it_answered(cluster: LocalApiServer, node: Node) -> None:
    agent = node.start()
    good, gone = claim_for(cluster, node, "here", "gpu-0"), Claim("nowhere", "nowhere")
    talk(node, lambda kubelet: kubelet.prepare(good, gone))
    talk(node, lambda kubelet: kubelet.unprepare(good))
    found = re.findall(r"call [0-9a-f]{8}: (\w+) of ([\w, ]+): OK(, failed: \w+)?, [0-9.]+ s", agent.log)
    assert found == [
        ("NodePrepareResources", "here, nowhere", ", failed: nowhere"),
        ("NodeUnprepareResources", "here", ""),
    ]


def test_a_log_in_json_has_the_call_in_each_line_that_belongs_to_it(cluster: LocalApiServer, node: Node) -> None:
    agent = node.start("--log-format", "json")
    gone = Claim("nowhere", "nowhere")

    async def say(kubelet: Kubelet) -> None:
        await kubelet.prepare(gone)
        await anext(kubelet.watch_health(HEALTH_V1))

    talk(node, say)
    until(lambda: "NodeWatchResources ends after" in agent.log)
    lines = [json.loads(line) for line in agent.log.splitlines()]
    assert all({"time", "level", "logger", "message"} <= line.keys() for line in lines)
    (call,) = [line["call"] for line in lines if "NodePrepareResources of nowhere: OK" in line["message"]]
    (failed,) = [line for line in lines if line.get("event") == "failed"]
    assert (failed["call"], failed["claim_uid"]) == (call, "nowhere"), "although it comes from another thread"
    streams = [line["call"] for line in lines if line["message"].startswith("stream")]
    assert len(streams) == 2
    assert set(streams) - {call} == set(streams), "the same id at both ends, and another one"


def test_the_versions_are_a_metric(cluster: LocalApiServer, node: Node) -> None:
    text = node.start().get("/metrics")[1]
    python = platform.python_version()
    assert f'dra_agent_build_info{{python="{python}",version="{__version__}"}} 1.0' in text
