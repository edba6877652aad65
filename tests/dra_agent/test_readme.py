"""What the README names exists, and the manifest matches the agent's defaults."""

from __future__ import annotations

import json
import re
from pathlib import Path

import kubernetes_validate
import pytest
import yaml

import dra_agent
import draState.plugin
from dra_agent import cli
from draState.plugin import Settings

PACKAGE = Path(dra_agent.__file__).parent
LIBRARY = Path(draState.plugin.__file__).parent
README = (PACKAGE / "README.md").read_text(encoding="utf-8")
MANIFEST = (PACKAGE / "daemonset.yaml").read_text(encoding="utf-8")


def test_every_file_that_is_named_is_there() -> None:
    named = set(re.findall(r"`(\w+\.py)`", README))
    assert named >= {"driver.py", "_cdi.py", "_draplugin.py"}
    files = {path.name for package in (PACKAGE, LIBRARY) for path in package.rglob("*.py")}
    assert named <= files


def test_the_manifest_mounts_what_the_agent_uses_by_default() -> None:
    defaults = Settings(node="n")
    for path in (f"{defaults.kubelet_dir}/plugins_registry", defaults.cdi_dir):
        assert f"mountPath: {path}}}" in MANIFEST
        assert f"hostPath: {{path: {path}," in MANIFEST
    mounted = set(re.findall(r"mountPath: (/(?:var|host)/[^\s,}]+)", MANIFEST))
    assert "--host-root=/host" in MANIFEST
    inside = {path.removeprefix("/host") for path in mounted}
    assert inside == set(re.findall(r"hostPath: {path: (\S+?),", MANIFEST)), "the same paths inside and outside"
    (grace,) = re.findall(r"--grace=([0-9]+)", MANIFEST)
    (waits,) = re.findall(r"terminationGracePeriodSeconds: ([0-9]+)", MANIFEST)
    assert int(grace) < int(waits)


@pytest.mark.parametrize("version", ["1.34", "1.35", "1.36", "1.37"])
def test_the_manifest_fits_the_published_schema_of_kubernetes(version: str) -> None:
    items = list(yaml.safe_load_all(MANIFEST))
    assert [item["kind"] for item in items][::8] == ["Namespace", "DaemonSet"]
    for item in items:
        assert kubernetes_validate.validate(item, version, strict=True) == version


def test_the_manifest_has_its_namespace_its_rights_and_runs_on_every_node() -> None:
    items = {item["kind"]: item for item in yaml.safe_load_all(MANIFEST)}
    name = items["Namespace"]["metadata"]["name"]
    assert {item["metadata"].get("namespace", name) for item in items.values()} == {name}
    rights = {kind: set(rule["verbs"]) for rule in items["ClusterRole"]["rules"] for kind in rule["resources"]}
    assert rights == {
        "resourceclaims": {"get", "list"},
        "resourceslices": {"get", "list", "create", "update", "delete"},
        "nodes": {"get"},
        "events": {"create"},
        "resourceclaims/status": {"patch"},
        "resourceclaims/driver": {"associated-node:patch"},
    }
    assert items["DaemonSet"]["spec"]["template"]["spec"]["tolerations"] == [{"operator": "Exists"}]


def test_an_agent_may_write_only_the_slices_of_its_driver_and_its_node() -> None:
    items = {item["kind"]: item for item in yaml.safe_load_all(MANIFEST)}
    policy = items["ValidatingAdmissionPolicy"]["spec"]
    assert items["ValidatingAdmissionPolicyBinding"]["spec"]["policyName"] == "dra-agent"
    (rule,) = policy["matchConstraints"]["resourceRules"]
    rights = items["ClusterRole"]["rules"][1]
    assert rights["resources"] == rule["resources"] == ["resourceslices"]
    assert {verb.upper() for verb in rights["verbs"]} - {"GET", "LIST"} == set(rule["operations"])
    account = items["ServiceAccount"]["metadata"]
    assert (
        f"system:serviceaccount:{account['namespace']}:{account['name']}" in policy["matchConditions"][0]["expression"]
    )
    driver = json.loads(items["ConfigMap"]["data"]["devices.json"])["driver"]
    assert [driver in each["expression"] for each in policy["validations"]] == [False, True, False]
    assert items["ClusterRole"]["rules"][-1]["resourceNames"] == [driver]


def test_every_option_that_is_named_is_there(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        cli.main(["--help"])
    offered = set(re.findall(r"--[a-z-]+", capsys.readouterr().out))
    named = set(re.findall(r"`(--[a-z-]+)", README)) - {"--root-dir", "--force"}  # of kubelet, and of `release`
    assert {"--kubelet-dir", "--plugin-dir", "--registry-dir", "--kubeconfig"} <= named <= offered
