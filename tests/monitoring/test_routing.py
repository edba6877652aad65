"""A real Alertmanager and Prometheus' promtool read the shipped configurations: grouping, inhibition and labels."""

from __future__ import annotations

import json
import re
import shutil
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from .rules import ALERTS, MONITORING
from .test_alerts import PROMTOOL, needs_promtool

ALERTMANAGER = shutil.which("prometheus-alertmanager") or shutil.which("alertmanager")
SEVERITIES = {alert.name: alert.severity for alert in ALERTS}
CONFIG = MONITORING / "alertmanager.yaml"
LIMIT = 60.0


class Alertmanager:
    """One that runs with the shipped configuration."""

    def __init__(self, address: str) -> None:
        self._address = address

    def fire(self, *alerts: tuple[str, str]) -> None:
        """Alerts by name and node."""
        labels = [{"alertname": name, "severity": SEVERITIES[name], "node": node} for name, node in alerts]
        self._ask("alerts", json.dumps([{"labels": each} for each in labels]).encode())

    def inhibited(self) -> set[tuple[str, str]]:
        found = self._ask("alerts?inhibited=true")
        return {
            (each["labels"]["alertname"], each["labels"]["node"]) for each in found if each["status"]["inhibitedBy"]
        }

    def groups(self) -> dict[tuple[str, str], int]:
        """The number of alerts in one message, by receiver and name of the alert."""
        found = self._ask("alerts/groups")
        return {(each["receiver"]["name"], each["labels"]["alertname"]): len(each["alerts"]) for each in found}

    def is_ready(self) -> bool:
        try:
            self._ask("status")
        except (OSError, urllib.error.URLError):
            return False
        return True

    def _ask(self, what: str, body: bytes | None = None) -> Any:
        request = urllib.request.Request(
            f"http://{self._address}/api/v2/{what}", body, {"Content-Type": "application/json"}
        )
        with urllib.request.urlopen(request, timeout=10) as reply:
            answer = reply.read()
        return json.loads(answer) if answer else None


@pytest.fixture
def alertmanager(tmp_path: Path) -> Iterator[Alertmanager]:
    if ALERTMANAGER is None:
        pytest.skip("needs an Alertmanager: apt-get install prometheus-alertmanager")
    with closing(socket.create_server(("127.0.0.1", 0))) as free:
        address = f"127.0.0.1:{free.getsockname()[1]}"
    command = [ALERTMANAGER, f"--config.file={CONFIG}", f"--storage.path={tmp_path}", "--cluster.listen-address="]
    with subprocess.Popen([*command, f"--web.listen-address={address}"], stderr=subprocess.DEVNULL) as process:
        try:
            running = Alertmanager(address)
            until = time.monotonic() + LIMIT
            while not running.is_ready():
                assert process.poll() is None, "Alertmanager refuses the configuration"
                assert time.monotonic() < until, "Alertmanager did not start"
                time.sleep(0.05)
            yield running
        finally:
            process.terminate()


def test_one_alert_on_many_nodes_is_one_message_to_the_right_receiver(alertmanager: Alertmanager) -> None:
    nodes = [f"n{number}" for number in range(50)]
    alertmanager.fire(
        *(("CheckpointTooNew", node) for node in nodes), *(("DraAgentNotServing", node) for node in nodes)
    )

    assert alertmanager.groups() == {("tickets", "CheckpointTooNew"): 50, ("pager", "DraAgentNotServing"): 50}


@pytest.mark.parametrize(
    ("cause", "follows", "stays"),
    [
        ("CheckpointDamageOnManyNodes", ("CheckpointDamaged", "DraClaimUnknown"), "CheckpointWritesFailing"),
        ("CheckpointNotUsable", ("DraAgentNotServing", "CheckpointUnreadable"), "CheckpointDamaged"),
        ("CheckpointWritesFailing", ("DraAgentOperationsFailing", "CheckpointSyncSlow"), "CheckpointDamaged"),
        ("DraAgentNotServing", ("DraAgentStandby", "DraClaimOrphaned"), "CheckpointDamaged"),
        ("CheckpointDamaged", ("DraClaimUnknown", "CheckpointQuarantined"), "CheckpointSyncSlow"),
    ],
)
def test_only_the_cause_is_sent_and_only_for_its_node(
    alertmanager: Alertmanager, cause: str, follows: tuple[str, ...], stays: str
) -> None:
    everywhere = cause == "CheckpointDamageOnManyNodes"  # it has no node
    alertmanager.fire((cause, "" if everywhere else "n1"), (stays, "n1"))
    alertmanager.fire(*((name, node) for name in follows for node in ("n1", "n2")))

    assert alertmanager.inhibited() == {
        (name, node) for name in follows for node in (["n1", "n2"] if everywhere else ["n1"])
    }


def test_every_alert_that_a_rule_of_inhibition_names_exists() -> None:
    named = re.findall(r'alertname=~?"([^"]+)"', CONFIG.read_text(encoding="utf-8"))
    for pattern in (part for each in named for part in each.split("|")):
        assert any(re.fullmatch(pattern, name) for name in SEVERITIES), pattern


@needs_promtool
def test_promtool_accepts_the_scrape_configuration(tmp_path: Path) -> None:
    text = (MONITORING / "prometheus.yaml").read_text(encoding="utf-8")
    # Debian builds Prometheus without Kubernetes; the rest of a job is the same for any kind of discovery.
    text = re.sub(r"kubernetes_sd_configs: .*", 'static_configs: [{targets: ["node-1:9100"]}]', text)
    (tmp_path / "prometheus.yaml").write_text(text, encoding="utf-8")
    shutil.copy(MONITORING / "alerts.yaml", tmp_path)

    command = [str(PROMTOOL), "check", "config", str(tmp_path / "prometheus.yaml")]
    checked = subprocess.run(command, capture_output=True, text=True, check=False)

    assert checked.returncode == 0, checked.stderr
    assert text.count("target_label: node") == text.count("job_name:")
