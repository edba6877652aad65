"""The alert rules, read as lines: each has its name, expression and texts on one line each."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

import monitoring

MONITORING = Path(monitoring.__path__[0])
RULES = MONITORING / "alerts.yaml"
PAGE = (MONITORING / "README.md").read_text(encoding="utf-8")


class Alert(NamedTuple):
    name: str
    expression: str
    minutes: int  # for which the condition must hold before it fires
    severity: str
    summary: str
    runbook: str


def _read(text: str) -> list[Alert]:
    alerts = []
    for part in text.split("- alert: ")[1:]:
        (expression,) = re.findall(r"^ +expr: (.+)$", part, flags=re.MULTILINE)
        waits = re.search(r"^ +for: (\d+)([mh])$", part, flags=re.MULTILINE)
        minutes = int(waits[1]) * {"m": 1, "h": 60}[waits[2]] if waits else 0
        (severity,) = re.findall(r"^ +labels: \{severity: (\w+)\}$", part, flags=re.MULTILINE)
        (summary,) = re.findall(r'^ +summary: "(.+)"$', part, flags=re.MULTILINE)
        (runbook,) = re.findall(r'^ +runbook: "(.+)"$', part, flags=re.MULTILINE)
        alerts.append(Alert(part.splitlines()[0], expression, minutes, severity, summary, runbook))
    return alerts


ALERTS = _read(RULES.read_text(encoding="utf-8"))
