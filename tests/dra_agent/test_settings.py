"""What is refused before anything starts, with a message that says where to look."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import pytest

from dra_agent import cli
from dra_agent.driver import FileDriver
from dra_agent.inventory import parse
from draState.plugin import Inventory, Settings, SettingsError, add_options
from draState.plugin.rehearsal import LocalApiServer

from .publishing import PublishingNode


def inventory(tmp_path: Path, content: object) -> Inventory:
    path = tmp_path / "devices.json"
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return parse(str(path), path.read_bytes(), "node-1")


def test_a_device_file_is_read(tmp_path: Path) -> None:
    devices = [{"name": "gpu-0", "env": {"A": 1}, "device_nodes": ["/dev/null"], "shared": True}, {"name": "gpu-1"}]
    read = inventory(tmp_path, {"driver": "gpu.example.com", "devices": devices})
    assert (read.driver, read.pool, [each.name for each in read.devices]) == (
        "gpu.example.com",
        "node-1",
        ["gpu-0", "gpu-1"],
    )
    assert (read.devices[0].env, read.devices[0].shared) == ({"A": "1"}, True)
    assert inventory(tmp_path, {"driver": "a.b", "pool": "p", "devices": []}).pool == "p"


def device(**fields: object) -> dict[str, object]:
    return {"driver": "a.b", "devices": [{"name": "x"}, {"name": "y", **fields}]}


def network(pools: object) -> dict[str, object]:
    return {**device(), "network_pools": pools}


def pool(**fields: object) -> dict[str, object]:
    return {"pool": "net", "all_nodes": True, "devices": [{"name": "nic"}], **fields}


def selected(node_selector: object) -> dict[str, object]:
    return {"pool": "net", "node_selector": node_selector, "devices": []}


def counted(shared: object, consumed: object = None) -> dict[str, object]:
    return {**device(consumes_counters=consumed or {}), "shared_counters": shared}


WRONG: dict[str, tuple[object, str]] = {
    "no JSON": ("no JSON", "Expecting value"),
    "a list": ([], "an object with a driver"),
    "no driver": ({"devices": []}, "'driver' is missing"),
    "no devices": ({"driver": "a.b"}, "'devices' is missing"),
    "devices that are no list": ({"driver": "a.b", "devices": {}}, "devices: a list"),
    "a driver with spaces": ({"driver": "Not A Name", "devices": []}, "driver: 'Not A Name' is not a DNS subdomain"),
    "a long driver": ({"driver": f"{'x' * 64}", "devices": []}, "at most 63"),
    "a driver that is no CDI vendor": (
        {"driver": "3d.example.com", "devices": []},
        "driver: .* not a CDI vendor.*letter",
    ),
    "a driver of one letter": ({"driver": "a", "devices": []}, "not a CDI vendor: at least two"),
    "a wrong pool": ({"driver": "a.b", "pool": "a//b", "devices": []}, "pool: '' is not a DNS subdomain"),
    "no name": ({"driver": "a.b", "devices": [{}]}, r"devices\[0\]: a device must be an object with a name"),
    "a name with a dot": (device(name="gpu.0"), r"devices\[1\]\.name: .* no dots"),
    "a name in capitals": (device(name="GPU0"), "not a DNS label"),
    "a name with a dash at its end": (device(name="gpu-"), "both ends"),
    "a long name": (device(name="x" * 64), "at most 63"),
    "two of a name": (device(name="x"), r"devices\[1\]\.name: two devices are called 'x'"),
    "shared as a word": (device(shared="no"), r"devices\[1\]\.shared: true or false"),
    "nodes that are no list": (device(device_nodes="/dev/null"), r"devices\[1\]\.device_nodes: a list"),
    "a node without its folder": (device(device_nodes=["null"]), "not an absolute path"),
    "one variable with two values": (
        {"driver": "a.b", "devices": [{"name": "x", "env": {"GPU": 0}}, {"name": "y", "env": {"GPU": 1}}]},
        "env: GPU has one value for x and another for y",
    ),
    "env without a name": (
        device(env={"": "x"}),
        r"devices\[1\]\.env: a variable's name is not empty",
    ),
    "env with = in its name": (device(env={"A=B": "x"}), "has no '='"),
    "env with an object": (device(env={"A": {}}), "the value of a variable must be a string"),
    "attributes as a list": (device(attributes=[]), r"devices\[1\]\.attributes: an object"),
    "an attribute with a dash": (device(attributes={"my-model": {"int": 1}}), "C identifier"),
    "a long attribute": (device(attributes={"a" * 33: {"int": 1}}), "at most 32"),
    "an attribute with two slashes": (device(attributes={"a/b/c": {"int": 1}}), "not a DNS subdomain"),
    "an attribute of no kind": (device(attributes={"a": {}}), r"devices\[1\]\.attributes\.a: .* exactly one of"),
    "an attribute without a kind": (device(attributes={"a": 1.5}), "exactly one of"),
    "an int of 65 bits": (device(attributes={"a": {"int": 2**63}}), "64 bits"),
    "a bool that is a word": (device(attributes={"a": {"bool": "true"}}), "true or false"),
    "a long string": (device(attributes={"a": {"string": "ä" * 33}}), "64 bytes"),
    "a version with a v": (device(attributes={"a": {"version": "v1.2.3"}}), "semver"),
    "an empty list": (device(attributes={"a": {"ints": []}}), "at least one"),
    "a list with another kind in it": (device(attributes={"a": {"ints": [1, "2"]}}), "whole number"),
    "a capacity without a value": (device(capacity={"a": {}}), r"devices\[1\]\.capacity\.a: .* has a value"),
    "a capacity of another unit": (device(capacity={"a": {"value": "16GB"}}), "not a quantity"),
    "a policy for one claim": (device(capacity={"a": {"value": "1", "requestPolicy": {}}}), "shared devices only"),
    "taints as an object": (device(taints={}), r"devices\[1\]\.taints: a list"),
    "many taints": (device(taints=[{"key": "a", "effect": "None"}] * 16), "at most 15"),
    "a taint without an effect": (device(taints=[{"key": "a"}]), r"devices\[1\]\.taints: a taint has a key, an effect"),
    "a taint of another effect": (device(taints=[{"key": "a", "effect": "NoRun"}]), "NoSchedule, NoExecute, None"),
    "a taint with a wrong key": (
        device(taints=[{"key": "a/b/c", "effect": "None"}]),
        "'a/b/c' is not a valid label name",
    ),
    "a taint with a wrong value": (
        device(taints=[{"key": "a", "value": "-", "effect": "None"}]),
        "not a valid label value",
    ),
    "counters as a list": (device(consumes_counters=[]), r"devices\[1\]\.consumes_counters: sets of counters by name"),
    "counters without amounts": (counted({"c": ["memory"]}), "shared_counters: sets of counters by name"),
    "a set without counters": (counted({"c": {}}), r"shared_counters\.c: at least one counter"),
    "a counter without a quantity": (counted({"c": {"m": "x"}}), r"shared_counters\.c\.m: .* not a quantity"),
    "counters of no set": (device(consumes_counters={"c": {"m": 1}}), "y: there are no shared_counters called 'c'"),
    "counters of many sets": (
        counted({n: {"m": 1} for n in "abc"}, {n: {"m": 1} for n in "abc"}),
        r"devices\[1\]\.consumes_counters: at most 2 sets",
    ),
    "counters of the node for a network device": (
        {
            **counted({"c": {"m": 1}}),
            "network_pools": [pool(devices=[{"name": "n", "consumes_counters": {"c": {"m": 1}}}])],
        },
        "n: there are no shared_counters called 'c' in pool net",
    ),
    "pools as an object": (network({}), "network_pools: a list"),
    "a pool without devices": (network([{"pool": "p"}]), r"network_pools\[0\]: an object with a pool and devices"),
    "the pool of the node": (network([pool(pool="node-1")]), "two pools are called 'node-1'"),
    "two pools of a name": (network([pool(), pool(devices=[])]), r"pools\[1\]\.pool: two pools are called 'net'"),
    "a pool for all and some": (network([pool(node_selector={"a": "b"})]), "and not both"),
    "a selector without labels": (network([selected({})]), r"network_pools\[0\]\.node_selector: an object with labels"),
    "a selector with a wrong label": (network([selected({"a b": "c"})]), "'a b' is not a valid label name"),
    "a selector with a wrong value": (
        network([selected({"a": ["b", "c d"]})]),
        r"node_selector\.a: 'c d' is not a valid label value",
    ),
    "a selector with no value": (network([selected({"a": []})]), "a has no value"),
    "a name in two pools": (network([pool(devices=[{"name": "x"}])]), "two devices are called 'x'"),
    "a wrong device in a pool": (network([pool(devices=[{}])]), r"network_pools\[0\]\.devices\[0\]: a device"),
    "one variable with two values in two pools": (
        {**device(env={"A": 1}), "network_pools": [pool(devices=[{"name": "n", "env": {"A": 2}}])]},
        "env: A has one value for y and another for n",
    ),
    "too many": (device(capacity={f"c{n}": {"value": "1"} for n in range(33)}), "more than 32"),
}


@pytest.mark.parametrize("what", WRONG)
def test_a_wrong_device_file_is_refused_with_file_field_and_rule(tmp_path: Path, what: str) -> None:
    content, said = WRONG[what]
    with pytest.raises(SettingsError, match=rf"(?s)devices\.json: not a usable device file: .*{said}"):
        inventory(tmp_path, content)


RIGHT: list[dict[str, object]] = [
    {"name": "0"},
    {"name": "x" * 63},
    {"attributes": {"a.b/model": {"string": ""}, "_m": {"version": "0.0.0-0.a-b+c.01"}, "n": {"ints": [1]}}},
    {"capacity": {"a.b/memory": {"value": "1.5Gi"}, "n": {"value": 4}, "e": {"value": "-1e-3"}, "d": {"value": ".5"}}},
    {"capacity": {"a": {"value": "1", "requestPolicy": {"default": "1"}}}, "shared": True},
    {"taints": [{"key": "a.b/c", "value": "", "effect": "None"}, {"key": "d", "value": "E_f", "effect": "NoExecute"}]},
    {"env": {"A b": "c=d", "N": 1, "EMPTY": ""}, "device_nodes": ["/dev/a", "/dev/b"]},
]


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # as in test_resourceslices
@pytest.mark.parametrize("fields", RIGHT)
def test_what_both_grammars_allow_is_accepted(
    tmp_path: Path, cluster: LocalApiServer, fields: dict[str, object]
) -> None:
    content = {"driver": "a0-b.example.com", "pool": "rack-1/node.a", "devices": [{"name": "y"} | fields]}
    read = inventory(tmp_path, content)
    assert len(read.devices) == 1
    assert PublishingNode(cluster).publish(read) == 1, "the API server's own rules agree"


def test_network_pools_are_read(tmp_path: Path) -> None:
    pools = [pool(), {**selected({"a.b/rack": ["7", "8"], "zone": "x"}), "pool": "rack", "devices": [{"name": "n"}]}]
    read = inventory(tmp_path, network(pools))
    assert [(each.name, [device.name for device in each.devices], each.node_selector) for each in read.network] == [
        ("net", ["nic"], None),
        ("rack", ["n"], {"a.b/rack": ("7", "8"), "zone": ("x",)}),
    ]
    assert list(read.all_devices()) == [("node-1", "x"), ("node-1", "y"), ("net", "nic"), ("rack", "n")]
    assert [read.pool_of(name) for name in ("x", "nic", "n", "gone")] == ["node-1", "net", "rack", "node-1"]


def test_the_driver_s_name_may_be_given_in_place_of_the_file_s(tmp_path: Path) -> None:
    path = tmp_path / "devices.json"
    for content in ('{"driver": "a.b", "devices": []}', '{"devices": []}'):
        path.write_text(content)
        assert FileDriver(str(path), "n1", "c.d").name == "c.d"


def test_a_missing_device_file_ends_the_command_with_2(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["--node", "n", "--devices", str(tmp_path / "none.json")]) == 2
    assert "none.json" in capsys.readouterr().err


def test_the_node_must_be_known(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.delenv("NODE_NAME", raising=False)
    assert cli.main(["--devices", "x"]) == 2
    assert "NODE_NAME" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("content", "member"),
    [
        ({**device(), "polo": "p"}, "polo"),
        (device(device_node=["/dev/null"]), "device_node"),
        (device(consumesCounters=[]), "consumesCounters"),
        (device(bindingConditions=["x"]), "bindingConditions"),
        (network([pool(allNodes=True)]), "allNodes"),
    ],
)
def test_a_member_that_is_not_known_is_refused_by_name(tmp_path: Path, content: object, member: str) -> None:
    with pytest.raises(SettingsError, match=f"there is no '{member}' here, only "):
        inventory(tmp_path, content)


@pytest.mark.parametrize("node", ["Node-1", "a_b", "a-", "a..b", "n" * 254])
def test_the_node_must_have_a_name_that_a_node_can_have(node: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["--node", node, "--devices", "x"]) == 2
    assert "--node: " in capsys.readouterr().err


def test_both_folders_of_kubelet_follow_from_its_root() -> None:
    found = Settings(node="n").places("a.b")
    assert (found.dra_socket, found.registration_socket) == (
        "/var/lib/kubelet/plugins/a.b/dra.sock",
        "/var/lib/kubelet/plugins_registry/a.b-reg.sock",
    )
    found = Settings(node="n", kubelet_dir="/var/lib/k0s/kubelet").places("a.b")
    assert (found.plugin, found.registry) == (
        "/var/lib/k0s/kubelet/plugins/a.b",
        "/var/lib/k0s/kubelet/plugins_registry",
    )
    assert found.state == "/var/lib/k0s/kubelet/plugins/a.b/claims"
    found = Settings(node="n", registry_dir="/r", plugin_dir="/p").places("a.b")
    assert (found.plugin, found.registry) == ("/p", "/r")


def test_every_option_has_the_default_of_its_setting() -> None:
    parser = argparse.ArgumentParser()
    add_options(parser)
    assert Settings.of(parser.parse_args(["--node", "n"])) == Settings(node="n")


def test_a_changed_device_file_is_read_again(tmp_path: Path) -> None:
    inventory(tmp_path, {"driver": "a.b", "devices": [{"name": "x"}]})
    driver = FileDriver(str(tmp_path / "devices.json"), "node-1")
    assert (driver.name, driver.pool, len(driver.devices())) == ("a.b", "node-1", 1)
    inventory(tmp_path, {"driver": "a.b", "pool": "p", "devices": [{"name": "x"}, {"name": "y"}]})
    assert ([device.name for device in driver.devices()], driver.pool) == (["x", "y"], "p")


@pytest.mark.parametrize("content", ["{", '{"driver": "other.driver", "devices": []}', device(name="gpu.0"), None])
def test_a_device_file_that_went_bad_changes_nothing(tmp_path: Path, content: object) -> None:
    path = tmp_path / "devices.json"
    inventory(tmp_path, {"driver": "a.b", "devices": [{"name": "x"}], "network_pools": [pool()]})
    driver = FileDriver(str(path), "node-1")
    if content is None:
        path.unlink()
    else:
        path.write_text(content if isinstance(content, str) else json.dumps(content))
    for _ in range(2):
        with pytest.raises(SettingsError, match=r"devices\.json"):
            driver.devices()
        assert (driver.name, driver.pool, len(driver.network_pools())) == ("a.b", "node-1", 1)
