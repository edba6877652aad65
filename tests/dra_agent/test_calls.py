"""What is counted and logged about kubelet's calls."""

from __future__ import annotations

import asyncio
import json
import re

from dra_agent.rehearsal import Node
from draState.plugin.rehearsal import AgentProcess, Claim, Kubelet, LocalApiServer

from .conversation import claim_for, talk, until

PATH = "/k8s.io.kubelet.pkg.apis.dra.v1.DRAPlugin/NodePrepareResources"
GONE = Claim("nowhere", "nowhere")


def counted(agent: AgentProcess, metric: str, **labels: str) -> float:
    listed = ",".join(f'{name}="{value}"' for name, value in sorted(labels.items()))
    found = re.search(rf"^{re.escape(f'{metric}_count{{{listed}}}')} (\S+)$", agent.get("/metrics")[1], re.MULTILINE)
    return float(found[1]) if found else 0.0


def operations(agent: AgentProcess, is_error: str) -> float:
    return counted(agent, "dra_operations_duration_seconds", operation_name="PrepareResources", is_error=is_error)


def grpc_calls(agent: AgentProcess, status: str) -> float:
    labels = {"driver_name": "gpu.example.com", "method_name": PATH, "grpc_status_code": status}
    return counted(agent, "dra_grpc_operations_duration_seconds", **labels)


def test_a_call_in_which_a_claim_failed_is_a_failed_operation_but_a_good_grpc_call(
    cluster: LocalApiServer, node: Node
) -> None:
    agent = node.start("--log-level", "debug")
    good = claim_for(cluster, node, "here", "gpu-0")
    talk(node, lambda kubelet: kubelet.prepare(good))
    talk(node, lambda kubelet: kubelet.prepare(good, GONE))
    talk(node, lambda kubelet: kubelet.unprepare(good))

    assert (operations(agent, "false"), operations(agent, "true"), grpc_calls(agent, "OK")) == (1, 1, 2)
    metric = r'dra_operations_duration_seconds_bucket{is_error="true",le="([0-9.]+)"'
    buckets = [float(bucket) for bucket in re.findall(metric, agent.get("/metrics")[1])]
    assert {0.1, 0.153413, 2.0, 40.0} <= set(buckets), "kubelet's are among ours"
    ends = re.findall(r"call ([0-9a-f]{8}): (\w+) of ([\w, ]+): OK(, failed: \w+)?, [0-9.]+ s", agent.log)
    assert [end[1:] for end in ends] == [
        ("NodePrepareResources", "here", ""),
        ("NodePrepareResources", "here, nowhere", ", failed: nowhere"),
        ("NodeUnprepareResources", "here", ""),
    ]
    assert re.findall(r"call ([0-9a-f]{8}): .* begins", agent.log) == [end[0] for end in ends]
    assert len({end[0] for end in ends}) == 3


def test_a_call_that_kubelet_gave_up_is_an_error_of_both(cluster: LocalApiServer, node: Node) -> None:
    async def give_up(kubelet: Kubelet) -> None:
        asking = asyncio.create_task(kubelet.prepare(GONE, once=True))
        await asyncio.to_thread(until, lambda: cluster.requests["resourceclaims"] > 0)
        asking.cancel()
        await asyncio.wait({asking})

    agent = node.start("--api-timeout", "60")
    cluster.delay = 60
    talk(node, give_up)
    until(lambda: (operations(agent, "true"), grpc_calls(agent, "Canceled")) == (1, 1))
    cluster.delay = 0


def test_a_log_in_json_has_the_call_in_each_line_that_belongs_to_it(cluster: LocalApiServer, node: Node) -> None:
    agent = node.start("--log-format", "json")

    async def say(kubelet: Kubelet) -> None:
        await kubelet.prepare(GONE)
        await anext(kubelet.watch_health())

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
