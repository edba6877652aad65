"""The recipe that collects the JSON of all nodes: its manifest, its schema, and its commands with a cluster of two."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import jsonschema
import kubernetes_validate
import pytest
import yaml

from checkpointmanager import CheckpointManager
from checkpointmanager.testing import damage
from docs import pages

from .rules import MONITORING

SCHEMA: dict[str, Any] = json.loads((MONITORING / "report.schema.json").read_text(encoding="utf-8"))
OBJECTS: list[dict[str, Any]] = list(yaml.safe_load_all((MONITORING / "collect.yaml").read_text(encoding="utf-8")))
POD = OBJECTS[1]["spec"]["template"]["spec"]
COMMANDS = pages.blocks_of("tools/monitoring/README.md", "sh")

# Answers as the API server of two nodes would; the second node's pod has not started.
KUBECTL = """#!/bin/sh
case "$*" in
*"get pods"*) printf 'collect-a   node-a\\ncollect-b   node-b\\n' ;;
*"logs collect-a"*) cat "$REPORT" ;;
*"logs collect-b"*) ;;
*) ;;
esac
"""


@pytest.fixture
def report(tmp_path: Path) -> Path:
    """What the container prints on a node with a damaged checkpoint and damaged files of kubelet."""
    lib = tmp_path / "host" / "var" / "lib"
    with CheckpointManager(lib / "agent" / "claims") as manager:
        for key in ("a", "b"):
            manager.create_checkpoint(key, {})
    damage.ruin(lib / "agent" / "claims", "b")
    (lib / "kubelet").mkdir()
    (lib / "kubelet" / "cpu_manager_state").write_bytes(b"")
    (script,) = POD["containers"][0]["args"]
    program = script.replace("/host", str(tmp_path / "host")).replace("/tmp/done", str(tmp_path / "done"))
    program = program.replace("checkpoint-verify", f"'{sys.executable}' -m checkpoint_verify", 1)
    printed = subprocess.run(
        ["sh", "-c", program.replace("exec sleep infinity", "true")], capture_output=True, check=True, timeout=500
    )
    assert (tmp_path / "done").exists()
    file = tmp_path / "report.json"
    file.write_bytes(printed.stdout)
    return file


@pytest.mark.parametrize("item", OBJECTS, ids=lambda item: item["kind"])
def test_kubernetes_accepts_the_manifest(item: dict[str, Any]) -> None:
    version = "1.34"
    assert kubernetes_validate.validate(item, version, strict=True) == version


def test_the_pod_cannot_change_the_node() -> None:
    (container,) = POD["containers"]
    assert all(mount.get("readOnly") or mount["name"] == "tmp" for mount in container["volumeMounts"])
    assert container["securityContext"]["capabilities"] == {"drop": ["ALL"], "add": ["DAC_READ_SEARCH"]}


def test_a_report_fits_its_schema(report: Path) -> None:
    jsonschema.Draft202012Validator.check_schema(SCHEMA)
    document = json.loads(report.read_bytes())

    jsonschema.validate(document, SCHEMA)
    assert document["verdict"] == "damaged"
    assert document["problems"]
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({**document, "verdict": "fine"}, SCHEMA)


def test_the_commands_of_the_page_collect_every_node_and_name_the_missing_one(report: Path, tmp_path: Path) -> None:
    if not shutil.which("jq"):
        pytest.skip("needs jq: apt-get install jq")
    programs = tmp_path / "bin"
    programs.mkdir()
    (programs / "kubectl").write_text(KUBECTL)
    (programs / "kubectl").chmod(0o755)
    environment = {**os.environ, "PATH": f"{programs}:{os.environ['PATH']}", "REPORT": str(report)}

    outputs = [
        subprocess.run(
            ["sh", "-euc", command], cwd=tmp_path, env=environment, capture_output=True, text=True, check=True
        ).stdout
        for command in COMMANDS
    ]

    collected = json.loads((tmp_path / "nodes" / "node-a.json").read_text())
    assert (collected["node"], collected["report"]) == ("node-a", json.loads(report.read_bytes()))
    assert "node-a\tDAMAGED" in outputs[1]
    assert "nodes/node-b.json\n" in outputs[1]
