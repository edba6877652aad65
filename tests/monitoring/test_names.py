"""Every metric and label that a rule or a panel names is exposed by the code; otherwise it would be silent for ever."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from . import exposition
from .exposition import Exposition
from .rules import ALERTS, MONITORING, PAGE, Alert

DASHBOARD: dict[str, Any] = json.loads((MONITORING / "dashboard.json").read_text(encoding="utf-8"))
PANELS: list[dict[str, Any]] = DASHBOARD["panels"]
QUERIES = {f"{panel['title']} {target['refId']}": target["expr"] for panel in PANELS for target in panel["targets"]}
EXPRESSIONS = {alert.name: alert.expression for alert in ALERTS} | QUERIES

FUNCTIONS = {
    "and", "by", "count", "histogram_quantile", "ignoring", "increase", "offset", "on", "or", "rate", "sum", "time",
    "topk", "unless", "vector",
}  # fmt: skip
SELECTOR = re.compile(r"([a-zA-Z_:][\w:]*)(\{[^}]*\})")
GROUPING = re.compile(r"\b(?:by|on|ignoring) \(([^)]*)\)")
LABELS_OF_PROMETHEUS = {"instance", "job", "le"}


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
    grouped = re.findall(r"(?:sum|count) by \(([^)]*)\)", alert.expression)
    if grouped:
        has = {label.strip() for label in grouped[0].split(",")}
    elif alert.expression.startswith("count("):
        has = set()
    else:
        has = LABELS_OF_PROMETHEUS.union(*(exposed.labels[name] for name in metrics_in(alert.expression)))

    assert set(re.findall(r"\$labels\.(\w+)", alert.summary + alert.runbook)) <= has


@pytest.mark.parametrize("alert", ALERTS, ids=lambda alert: alert.name)
def test_every_alert_has_a_severity_and_one_line_of_runbook_and_is_in_the_manual(alert: Alert) -> None:
    assert alert.severity in ("critical", "warning")
    assert alert.summary
    assert len(alert.runbook) > 30
    assert f"`{alert.name}`" in PAGE


def test_the_alerts_that_the_panels_mention_are_there() -> None:
    names = {alert.name for alert in ALERTS}
    mentioned = {word for panel in PANELS for word in re.findall(r"\b(?:Checkpoint|Dra)[A-Z]\w+", panel["description"])}
    assert len(mentioned) > 10
    assert mentioned <= names


def test_panels_do_not_overlap_and_fill_the_width() -> None:
    cells = [
        (x, y)
        for place in (panel["gridPos"] for panel in PANELS)
        for x in range(place["x"], place["x"] + place["w"])
        for y in range(place["y"], place["y"] + place["h"])
    ]
    assert len(cells) == len(set(cells)) == 24 * (max(y for _, y in cells) + 1)
    assert len({panel["id"] for panel in PANELS}) == len(PANELS)


def test_the_picture_is_that_of_the_dashboard() -> None:
    from monitoring import picture

    assert picture.draw(DASHBOARD) == (MONITORING / "dashboard.svg").read_text(encoding="utf-8")
    assert "![" in PAGE
    assert "(dashboard.svg)" in PAGE


def test_the_manuals_point_here(tmp_path: Path) -> None:
    tools = MONITORING.parent
    for manual in ("checkpoint_verify", "dra_agent"):
        assert "(../monitoring/README.md)" in (tools / manual / "README.md").read_text(encoding="utf-8")
