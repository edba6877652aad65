"""Every metric and label that a rule or a panel names is exposed by the code; otherwise it would be silent for ever."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from xxhash import xxh3_64_hexdigest

from checkpointmanager import CheckpointManager

from . import exposition
from .exposition import Exposition
from .rules import ALERTS, MONITORING, PAGE, Alert

DASHBOARD: dict[str, Any] = json.loads((MONITORING / "dashboard.json").read_text(encoding="utf-8"))
PANELS: list[dict[str, Any]] = DASHBOARD["panels"]
QUERIES = {f"{panel['title']} {target['refId']}": target["expr"] for panel in PANELS for target in panel["targets"]}
EXPRESSIONS = {alert.name: alert.expression for alert in ALERTS} | QUERIES

FUNCTIONS = {
    "and", "bool", "by", "count", "histogram_quantile", "ignoring", "increase", "max", "offset", "on", "or", "rate",
    "sum", "time", "topk", "unless", "vector",
}  # fmt: skip
SELECTOR = re.compile(r"([a-zA-Z_:][\w:]*)(\{[^}]*\})")
GROUPING = re.compile(r"\b(?:by|on|ignoring) \(([^)]*)\)")
LABELS_OF_PROMETHEUS = {"node", "instance", "job", "le"}  # prometheus.yaml adds the first


def metrics_in(expression: str) -> set[str]:
    """What is left of an expression without its strings, labels, durations and functions."""
    bare = re.sub(r'"[^"]*"', "", expression)
    bare = re.sub(r"\{[^}]*\}|\[[^\]]*\]", " ", bare)
    bare = GROUPING.sub(" ", bare)
    return set(re.findall(r"(?<![\w.])[a-zA-Z_:][\w:]*", bare)) - FUNCTIONS


def labels_in(expression: str) -> set[str]:
    matched = {label for _, inner in SELECTOR.findall(expression) for label in re.findall(r"(\w+)(?:=|!)", inner)}
    grouped = {label.strip() for inner in GROUPING.findall(expression) for label in inner.split(",")}
    return matched | grouped


@pytest.fixture(scope="module")
def exposed(tmp_path_factory: pytest.TempPathFactory) -> Exposition:
    return exposition.of_an_agent_and_of_verify(tmp_path_factory.mktemp("exposed"))


def test_a_metric_is_distinguished_from_a_function_and_a_label() -> None:
    expression = 'topk(10, sum by (le) (rate(some_bucket{a="x", b!="up"}[5m]))) > 1e3 or other offset 1h'

    assert metrics_in(expression) == {"some_bucket", "other"}
    assert labels_in(expression) == {"le", "a", "b"}


@pytest.mark.parametrize("place", EXPRESSIONS)
def test_every_metric_and_label_that_is_named_is_exposed(place: str, exposed: Exposition) -> None:
    metrics = metrics_in(EXPRESSIONS[place])
    assert metrics
    assert metrics - exposed.labels.keys() == set()

    known = LABELS_OF_PROMETHEUS.union(*(exposed.labels[name] for name in metrics))
    assert labels_in(EXPRESSIONS[place]) - known == set()


@pytest.mark.parametrize("alert", ALERTS, ids=lambda alert: alert.name)
def test_every_label_that_a_text_names_is_one_of_the_alert(alert: Alert, exposed: Exposition) -> None:
    grouped = re.findall(r"(?:sum|count|max) by \(([^)]*)\)", alert.expression)
    if grouped:
        has = {label.strip() for label in grouped[0].split(",")}
    elif alert.expression.startswith("count("):
        has = set()
    else:
        has = LABELS_OF_PROMETHEUS.union(*(exposed.labels[name] for name in metrics_in(alert.expression)))

    assert set(re.findall(r"\$labels\.(\w+)", alert.summary + alert.runbook)) <= has


@pytest.mark.parametrize("alert", ALERTS, ids=lambda alert: alert.name)
def test_every_alert_has_a_severity_and_one_line_of_runbook_and_is_in_the_manual(alert: Alert) -> None:
    assert alert.severity in ("page", "ticket")
    assert alert.summary
    assert len(alert.runbook) > 30
    assert f"| `{alert.name}` | {alert.severity} |" in PAGE


def test_the_alerts_that_the_panels_mention_are_there() -> None:
    names = {alert.name for alert in ALERTS}
    mentioned = {word for panel in PANELS for word in re.findall(r"\b(?:Checkpoint|Dra)[A-Z]\w+", panel["description"])}
    assert len(mentioned) > 10
    assert mentioned <= names


def test_at_most_five_alerts_wake_somebody() -> None:
    assert 0 < sum(alert.severity == "page" for alert in ALERTS) <= 5


def test_every_query_of_the_dashboard_is_about_the_chosen_nodes() -> None:
    (variable,) = (each for each in DASHBOARD["templating"]["list"] if each["name"] == "node")
    assert (variable["multi"], variable["includeAll"]) == (True, True)
    for place, expression in QUERIES.items():
        assert len(re.findall(r'\bnode=~"\$node"', expression)) == len(
            re.findall(r"\b(?:up|checkpointmanager_\w+|dra_\w+)\{", expression)
        ), place


@pytest.mark.parametrize("panel", [panel for panel in PANELS if panel["type"] == "stat"], ids=lambda p: p["title"])
def test_a_number_is_red_where_an_alert_pages_and_orange_where_it_is_a_ticket(panel: dict[str, Any]) -> None:
    severities = {alert.name: alert.severity for alert in ALERTS}
    named = [severities[word] for word in re.findall(r"\b(?:Checkpoint|Dra)[A-Z]\w+", panel["description"])]
    colours = [step["color"] for step in panel["fieldConfig"]["defaults"]["thresholds"]["steps"]]
    assert colours == ["green", *({"page": "red", "ticket": "orange"}[severity] for severity in named)]


@pytest.mark.parametrize(("mode", "refused"), [(0o700, 0), (0o777, 1)])
def test_files_of_a_newer_release_do_not_count_as_refused(mode: int, refused: int, tmp_path: Path) -> None:
    state = tmp_path / "state"
    with CheckpointManager(state) as manager:
        for number in range(3):
            manager.create_checkpoint(f"key-{number}", {})
    for path in state.glob("*.json"):
        body = path.read_bytes()[36:].replace(b'"format":1', b'"format":2')
        path.write_bytes(f'{{"checksum":"xxh3:{xxh3_64_hexdigest(body)}",'.encode() + body)
    state.chmod(mode)

    seen = exposition.of_verify(state, tmp_path / "checkpoints.prom")

    assert seen.values["checkpointmanager_too_new"] == 3
    assert seen.values["checkpointmanager_not_usable"] - seen.values["checkpointmanager_too_new"] == refused
