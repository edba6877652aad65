"""The rehearsal passes a good driver, and fails one with a classic bug in the act that reveals it."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from draState.plugin.rehearsal import ACTS, Failed, NotReady, Stage, rehearse

NIC = "docs.guides.nic:Nic"  # the driver of the tutorial
BROKEN = "tests.draState.plugin.broken"


def test_a_good_driver_gives_every_pod_its_device_through_everything_that_happens_to_one_node() -> None:
    """Kills before the answer, reboot, API server down and hanging, damage, CDI files deleted, claims that change."""
    with Stage(NIC, shared=frozenset()) as stage:
        for act in ACTS.values():
            act(stage)
            stage.close_down()


@pytest.mark.parametrize(
    ("driver", "act", "failure"),
    [
        ("Forgetful", "kill", "pod 1 (eth1) and pod 3 (eth2) both have NIC_ADDRESS=10.0.0.1"),
        ("Lost", "kill", "pod 2 (eth2) cannot end: KeyError"),
        ("Once", "interrupt", "pod 3 (eth1) cannot start: [Errno 17] File exists"),
        ("Strict", "interrupt", "pod 3 (eth1) cannot end: [Errno 2] No such file"),
        ("Leaky", "start", "all pods have ended, and this is left on the node: host/eth1.address, host/eth2.address"),
        ("Renumbered", "reboot", "which this node does not have"),
        ("Stale", "late", "pod 1 (eth1) must wait, and was given eth1"),
        ("Stale", "reallocate", "pod 1 (eth2) was given eth1"),
        ("Fickle", "outage", "pod 1 (eth1) cannot start"),
        ("Fickle", "kill", "pod 1 (eth1) has NIC_QUEUE="),
        ("Chatty", "hang", "pod 1 (eth1) cannot end"),
        ("Exclusive", "update", "the process did not become ready"),
        ("Tidy", "cdi", "no CDI file defines nic.example.com/device=00000001-"),
        ("Doubling", "start", "is defined twice"),
        ("Crashing", "start", "the driver's process has ended by itself"),
    ],
)
def test_a_classic_bug_fails_the_act_that_reveals_it(driver: str, act: str, failure: str) -> None:
    with Stage(f"{BROKEN}:{driver}", shared=frozenset()) as stage, pytest.raises((Failed, NotReady)) as failed:
        ACTS[act](stage)
        stage.close_down()
    assert failure in str(failed.value)


def test_a_driver_that_does_not_start_is_reported_with_its_log() -> None:
    with pytest.raises(NotReady, match="no such card"):
        next(iter(rehearse(f"{BROKEN}:Dead")))


def command(*arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    full = [sys.executable, "-m", "draState.plugin.rehearsal", *arguments]
    return subprocess.run(full, env=environment, capture_output=True, text=True, timeout=120, check=False)


def test_the_command_prints_what_pods_would_have_got_and_exits_with_1_after_a_failure() -> None:
    done = command(f"{BROKEN}:Lost", "kill", "--json")
    assert (done.returncode, done.stderr) == (1, "")
    start, kill = map(json.loads, done.stdout.splitlines())
    assert (start["act"], start["failure"], kill["act"]) == ("start", "", "kill")
    assert kill["events"][2:] == ["kill -9", "start", "prepare 1 (eth1)", "unprepare 2 (eth2)"]
    assert kill["pods"]["1"]["device"] == "eth1"
    assert "NIC_ADDRESS=10.0.0.1" in kill["pods"]["1"]["edits"]
    assert any("broken.py" in line for line in kill["log"]), "the traceback leads to the bug"


@pytest.mark.parametrize(
    ("driver", "complaint"),
    [("no_such_module:Nic", "no_such_module"), ("docs.guides.nic:HOST", "not a subclass of draState.plugin.Driver")],
)
def test_the_command_exits_with_2_if_there_is_no_such_driver(driver: str, complaint: str) -> None:
    done = command(driver)
    assert (done.returncode, done.stdout) == (2, "")
    assert complaint in done.stderr


def test_help_lists_every_act_and_every_exit_code() -> None:
    said = command("--help").stdout
    assert all(f"\n  {name} " in said for name in ACTS)
    assert "exit codes: 0" in said
