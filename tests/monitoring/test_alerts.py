"""Prometheus' own promtool reads the rules, and fires each of them when it should and not before."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from .rules import ALERTS, RULES
from .test_names import EXPRESSIONS

PROMTOOL = shutil.which("promtool")
needs_promtool = pytest.mark.skipif(PROMTOOL is None, reason="needs promtool: apt-get install prometheus")

D = 'directory="/claims"'
N = f'node="n1",{D}'
STEPS = 240  # minutes for which there are samples


class Case(NamedTuple):
    """Series in promtool's notation (start+step x times), when to look, and the labels of what then fires."""

    alert: str
    series: dict[str, str]
    minute: int
    fires: list[dict[str, str]]
    value: str = ""  # the text of $value, where a message has it


def always(value: float) -> str:
    return f"{value}+0x{STEPS}"


def from_minute(minute: int, before: float, after: float) -> str:
    return f"{before}+0x{minute - 1} {after}+0x{STEPS - minute}"


def histogram(name: str, labels: str, slow: float) -> dict[str, str]:
    """One observation per second, all of them between `slow` and the bucket above it."""
    buckets = {"0.25": 0, "0.5": 0, "1.0": 0, "2.5": 0, "5.0": 0, "10.0": 0, "+Inf": 60}
    counted = {le: 60 if le == "+Inf" or float(le) > slow else count for le, count in buckets.items()}
    return {f'{name}_bucket{{{labels},le="{le}"}}': f"0+{count}x{STEPS}" for le, count in counted.items()}


HERE = {"node": "n1", "directory": "/claims"}
NODE = {"node": "n1"}
IN_DOUBT = f"checkpointmanager_writes_in_doubt_total{{{N}}}"
RESULT = f"checkpointmanager_verify_last_run_result{{{N}}}"
PREPARE = 'node="n1",operation_name="PrepareResources"'
DAMAGED = f'checkpointmanager_damaged{{{N},reason="empty"}}'
STAMP = f"checkpointmanager_verify_last_run_timestamp_seconds{{{N}}}"

CASES: list[Case] = [
    Case("CheckpointDamaged", {DAMAGED: from_minute(10, 0, 2)}, 14, []),
    Case("CheckpointDamaged", {DAMAGED: from_minute(10, 0, 2)}, 16, [HERE], "2"),
    Case("CheckpointDamaged", {DAMAGED: always(0)}, 60, []),
    Case(
        "CheckpointDamaged",  # seen by the agent and by checkpoint-verify
        {f'checkpointmanager_damaged{{{N},job="{job}",reason="empty"}}': always(2) for job in ("agent", "node")},
        10, [HERE], "2",
    ),
    *(
        Case(
            "CheckpointDamageOnManyNodes",
            {
                f'checkpointmanager_damaged{{node="n{n}",job="{job}",reason="empty"}}': always(int(n < bad))
                for n in range(20)
                for job in ("agent", "node")
            },
            10, [{}] * (bad == 5), "5",
        )
        for bad in (4, 5)
    ),
    Case("CheckpointUnreadable", {f"checkpointmanager_unreadable{{{N}}}": always(1)}, 10, []),
    Case("CheckpointUnreadable", {f"checkpointmanager_unreadable{{{N}}}": always(1)}, 20, [HERE], "1"),
    *(
        Case(
            "CheckpointNotUsable",
            {
                f"checkpointmanager_not_usable{{{N}}}": always(not_usable),
                f"checkpointmanager_too_new{{{N}}}": always(too_new),
            },
            60, fires,
        )
        for not_usable, too_new, fires in ((0, 0, []), (3, 3, []), (1, 0, [HERE]), (4, 3, [HERE]))
    ),
    Case("CheckpointTooNew", {f"checkpointmanager_too_new{{{N}}}": always(0)}, 60, []),
    Case("CheckpointTooNew", {f"checkpointmanager_too_new{{{N}}}": always(3)}, 60, [HERE], "3"),
    *(
        case
        for alert, name in (("CheckpointSchemaMismatch", "schema_mismatches"), ("CheckpointRecovered", "recoveries"))
        for series in [f"checkpointmanager_{name}_total{{{N}}}"]
        for case in (
            Case(alert, {series: always(0)}, 90, []),
            Case(alert, {series: from_minute(60, 0, 1)}, 70, [HERE]),
            Case(alert, {series: from_minute(60, 0, 1)}, 200, []),
            Case(alert, {series: always(1)}, 5, [HERE]),  # true at the first scrape
            Case(alert, {series: always(1)}, 90, []),  # and no news an hour later
        )
    ),
    Case("CheckpointQuarantined", {f"checkpointmanager_quarantined{{{N}}}": always(4)}, 90, []),
    Case("CheckpointQuarantined", {f"checkpointmanager_quarantined{{{N}}}": from_minute(70, 4, 5)}, 90, [HERE]),
    Case("CheckpointQuarantined", {f"checkpointmanager_quarantined{{{N}}}": from_minute(70, 4, 0)}, 90, []),
    Case("CheckpointWritesFailing", {f"checkpointmanager_write_failures_total{{{N}}}": always(7)}, 60, []),
    Case("CheckpointWritesFailing", {f"checkpointmanager_write_failures_total{{{N}}}": from_minute(30, 0, 1)}, 60, []),
    Case("CheckpointWritesFailing", {f"checkpointmanager_write_failures_total{{{N}}}": f"0+1x{STEPS}"}, 60, [HERE]),
    Case("CheckpointWritesInDoubt", {IN_DOUBT: always(1)}, 60, []),
    Case("CheckpointWritesInDoubt", {IN_DOUBT: from_minute(30, 0, 1)}, 35, [HERE]),
    Case("CheckpointSyncSlow", histogram("checkpointmanager_sync_seconds", N, 0.3), 60, []),
    Case("CheckpointSyncSlow", histogram("checkpointmanager_sync_seconds", N, 0.6), 60, [HERE]),
    Case("CheckpointLockWaitsLong", histogram("checkpointmanager_lock_wait_seconds", N, 0.6), 60, []),
    Case("CheckpointLockWaitsLong", histogram("checkpointmanager_lock_wait_seconds", N, 1.5), 60, [HERE]),
    Case("CheckpointVerifyStale", {STAMP: f"0+60x{STEPS}"}, 200, []),
    Case("CheckpointVerifyStale", {STAMP: always(0)}, 59, []),
    Case("CheckpointVerifyStale", {STAMP: always(0)}, 61, [HERE]),
    *(
        Case("CheckpointVerifyCouldNotLook", {RESULT: always(code)}, 60, fires)
        for code, fires in ((0, []), (1, []), (3, [HERE]))
    ),
    *(
        Case("CheckpointVerifyMissing", {'up{node="n1",job="node-exporter"}': always(up), **stamp}, 90, fires)
        for up, stamp, fires in (
            (1, {STAMP: always(0)}, []),
            (0, {}, []),
            (1, {}, [{**NODE, "job": "node-exporter"}]),
        )
    ),
    *(
        Case("CheckpointNodeLabelMissing", {f'{series}{{{labels}job="a"}}': always(0)}, 30, fires)
        for series in ("checkpointmanager_damaged", "dra_agent_phase")
        for labels, fires in (('node="n1",', []), ("", [{"job": "a"}]))
    ),
    *(
        Case(
            "DraAgentNotServing",
            {
                'up{node="n1",job="dra-agent"}': always(up),
                'dra_agent_registered{node="n1"}': always(registered),
                **{
                    f'dra_agent_phase{{node="n1",phase="{each}"}}': always(int(each == phase))
                    for each in ("starting", "standby", "serving", "stopping")
                },
            },
            15, fires,
        )
        for up, phase, registered, fires in (
            (1, "serving", 1, []), (1, "standby", 0, []),
            (0, "", 0, [NODE]), (1, "serving", 0, [NODE]), (1, "starting", 0, [NODE]), (1, "stopping", 1, [NODE]),
        )
    ),
    Case(
        "DraAgentNotServing",  # a crash loop: down, starting, down, ... is one condition
        {
            'up{node="n1",job="dra-agent"}': " ".join(["0", "1"] * (STEPS // 2)),
            'dra_agent_phase{node="n1",phase="starting"}': " ".join(["_", "1"] * (STEPS // 2)),
        },
        15, [NODE],
    ),
    Case("DraClaimUnknown", {'dra_resource_claims_in_use{node="n1"}': always(3)}, 60, []),
    Case(
        "DraClaimUnknown",
        {f'dra_resource_claims_unknown{{node="n1",claim_uid="{n}"}}': always(1) for n in range(3)},
        15, [NODE], "3",
    ),
    *(
        Case(
            f"DraClaim{alert}",
            {f'dra_resource_claims_{metric}{{node="n1",claim_uid="{n}"}}': always(1) for n in range(3)},
            10, [NODE], "3",
        )
        for alert, metric in (("UnknownDevices", "unknown_devices"), ("Outdated", "outdated"))
    ),
    Case("DraClaimUnknownDevices", {'dra_resource_claims_unknown{node="n1"}': always(3)}, 60, []),
    Case("DraClaimOutdated", {'dra_resource_claims_in_use{node="n1"}': always(3)}, 60, []),
    Case("DraClaimOrphaned", {'dra_resource_claims_in_use{node="n1"}': always(3)}, 60, []),
    Case(
        "DraClaimOrphaned",
        {f'dra_resource_claims_orphaned{{node="n1",claim_uid="{n}"}}': always(1) for n in range(3)},
        40, [NODE], "3",
    ),
    *(
        Case(
            "DraClaimUnfinished", {f'dra_resource_claims_phase{{node="n1",phase="{phase}"}}': always(count)}, 40,
            [{**NODE, "phase": phase}] if count and phase != "prepared" else [], "1",
        )
        for phase in ("preparing", "prepared", "unpreparing")
        for count in (0, 1)
    ),
    *(
        Case(
            "DraAgentStandby", {f'dra_agent_phase{{node="n1",phase="{phase}"}}': always(1)}, 40,
            [{**NODE, "phase": phase}] if phase == "standby" else [],
        )
        for phase in ("starting", "standby", "serving", "stopping")
    ),
    *(
        Case(
            "DraAgentOperationsFailing",
            {
                f'dra_operations_duration_seconds_count{{{PREPARE},is_error="true"}}': f"0+{bad}x{STEPS}",
                f'dra_operations_duration_seconds_count{{{PREPARE},is_error="false"}}': f"0+{100 - bad}x{STEPS}",
            },
            60, fires,
        )
        for bad, fires in ((0, []), (10, []), (11, [{**NODE, "operation_name": "PrepareResources"}]))
    ),
    Case("DraAgentOperationsSlow", histogram("dra_operations_duration_seconds", PREPARE, 3), 60, []),
    Case("DraAgentOperationsSlow", histogram("dra_operations_duration_seconds", PREPARE, 6), 60,
         [{**NODE, "operation_name": "PrepareResources"}]),
]  # fmt: skip


@needs_promtool
def test_promtool_accepts_the_rules() -> None:
    checked = subprocess.run([str(PROMTOOL), "check", "rules", RULES], capture_output=True, text=True, check=False)

    assert checked.returncode == 0, checked.stderr
    assert f"{len(ALERTS)} rules found" in checked.stdout


@needs_promtool
def test_promtool_accepts_every_query_of_the_dashboard(tmp_path: Path) -> None:
    rules = [
        {"record": f"a:{n}", "expr": expression.replace("$__rate_interval", "5m")}
        for n, expression in enumerate(EXPRESSIONS.values())
    ]
    (tmp_path / "rules.yaml").write_text(json.dumps({"groups": [{"name": "dashboard", "rules": rules}]}))

    checked = subprocess.run(
        [str(PROMTOOL), "check", "rules", tmp_path / "rules.yaml"], capture_output=True, text=True, check=False
    )

    assert checked.returncode == 0, checked.stderr


def test_every_alert_fires_in_one_case_and_is_quiet_in_another() -> None:
    for alert in ALERTS:
        outcomes = {bool(case.fires) for case in CASES if case.alert == alert.name}
        assert outcomes == {True, False}, alert.name


@needs_promtool
def test_each_alert_fires_when_it_should_and_not_before(tmp_path: Path) -> None:
    (tmp_path / "alerts.yaml").write_text(RULES.read_text(encoding="utf-8"))
    tests = [_promtool_test(case) for case in CASES]
    document = {"rule_files": ["alerts.yaml"], "evaluation_interval": "1m", "tests": tests}
    (tmp_path / "tests.yaml").write_text(json.dumps(document))

    tested = subprocess.run(
        [str(PROMTOOL), "test", "rules", "tests.yaml"], cwd=tmp_path, capture_output=True, text=True, check=False
    )

    assert tested.returncode == 0, tested.stdout + tested.stderr


def _promtool_test(case: Case) -> dict[str, Any]:
    (alert,) = (alert for alert in ALERTS if alert.name == case.alert)

    def text(template: str, labels: dict[str, str]) -> str:
        filled = re.sub(r"\{\{ \$labels\.(\w+) \}\}", lambda found: labels.get(found[1], ""), template)
        return filled.replace("{{ $value }}", case.value)

    expected = [
        {
            "exp_labels": {**labels, "severity": alert.severity},
            "exp_annotations": {"summary": text(alert.summary, labels), "runbook": text(alert.runbook, labels)},
        }
        for labels in case.fires
    ]
    looks = [(case.minute, expected)]
    if case.fires and alert.minutes:
        looks.append((alert.minutes - 1, []))  # too early, whenever it began
    return {
        "interval": "1m",
        "input_series": [{"series": series, "values": values} for series, values in case.series.items()],
        "alert_rule_test": [
            {"eval_time": f"{minute}m", "alertname": case.alert, "exp_alerts": alerts} for minute, alerts in looks
        ],
    }
