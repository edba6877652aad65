"""GOOD means that the agent can start: verify makes the agent's opening checks, for the user who owns the directory."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from checkpoint_verify.findings.agent import acting_as_agent, refusal_of_file
from checkpointmanager import ANY_KIND, CheckpointManager, InsecureDirectory, Schema
from draState import CLAIMS, POD_CONFIGS

from .command import NOBODY, called
from .state import make


def test_a_directory_that_the_agent_refuses_is_not_good_and_the_next_step_mends_it(directory: Path) -> None:
    directory.chmod(0o777)
    with pytest.raises(InsecureDirectory):
        CheckpointManager(directory)

    ended = called(directory)

    assert ended.code == 1
    assert ended.lines[0].startswith("NOT USABLE: 4 checkpoints, but the agent cannot start in ")
    assert "insecure: every user can write to it (mode 0777). The agent refuses to open this directory" in ended.out
    assert f"Next: chmod o-w {directory}" in ended.out
    directory.chmod(0o775)
    assert called("--strict", directory).code == 0


def test_while_an_agent_runs_there_it_is_a_warning_only(directory: Path) -> None:
    directory.chmod(0o777)

    with CheckpointManager(directory, ANY_KIND, allow_insecure=True):
        ended = called(directory)

    assert ended.code == 0
    assert ended.lines[0].startswith("GOOD, with 1 warning: 4 checkpoints in ")
    assert "warning: " in ended.out
    assert "an agent not configured to allow this would refuse" in ended.out
    assert called(directory).code == 1


def test_a_directory_of_another_program_is_not_held_to_the_agent_s_rules(tmp_path: Path) -> None:
    tmp_path.chmod(0o777)
    (tmp_path / "package.json").write_text("{}")

    assert "insecure" not in called(tmp_path).out


@pytest.mark.parametrize(
    ("hurt", "name", "step"),
    [
        (lambda path: os.chown(path / "claim-1.json", 0, 0), "claim-1.json", f"chown {NOBODY}:{NOBODY} "),
        (lambda path: (path / "claim-1.json").chmod(0o200), "claim-1.json", "chmod u+r "),
        (lambda path: os.chown(path / ".lock", 0, 0), ".lock", f"chown {NOBODY}:{NOBODY} "),
        (lambda path: path.chmod(0o500), "", "chmod u+rwx "),
    ],
    ids=["file of root", "file without the right to read", "lock of root", "directory without the right to write"],
)
def test_what_the_owner_of_the_directory_cannot_use_is_not_good_whichever_user_checks(
    agents_directory: Path, hurt: Callable[[Path], Any], name: str, step: str
) -> None:
    directory = agents_directory
    assert called("--strict", directory).code == 0
    hurt(directory)

    by_root = called(directory)
    by_itself = called(directory, user=NOBODY) if name == "claim-1.json" else by_root

    for ended in (by_root, by_itself):
        assert ended.code == 1
        assert ended.lines[0].startswith("NOT USABLE: ")
        assert f"not-usable: {directory / name}: no-access: user {NOBODY}" in ended.out
        assert f"Next: {step}{directory / name}" in ended.out


@pytest.mark.parametrize("owner", [(NOBODY, 0), (0, NOBODY), (0, 0)], ids=["user", "group", "others"])
def test_the_rule_by_stat_agrees_with_the_kernel_for_all_512_modes(
    reachable_directory: Path, owner: tuple[int, int]
) -> None:
    directory = reachable_directory
    os.chown(directory, NOBODY, NOBODY)
    directory.chmod(0o700)
    for mode in range(0o1000):
        path = directory / f"{mode:o}"
        path.touch()
        path.chmod(mode)
        os.chown(path, *owner)

    with acting_as_agent(str(directory)) as user:
        assert user
        for mode in range(0o1000):
            path = directory / f"{mode:o}"
            refused = refusal_of_file(str(path), "", path.stat(), user) is not None
            in_doubt = owner == (0, 0) and mode & 0o040 and not mode & 0o004  # of a group that the user may be in
            assert refused is (not in_doubt and not os.access(path, os.R_OK, effective_ids=True)), path


@pytest.mark.parametrize("schema", [CLAIMS, POD_CONFIGS], ids=lambda schema: str(schema.kind))
def test_a_version_that_this_installation_cannot_read_is_not_good(tmp_path: Path, schema: Schema[Any]) -> None:
    newer: Schema[Any] = Schema(schema.kind, version=schema.version + 2, readable_by=schema.version + 1)
    with CheckpointManager(tmp_path / "state", newer) as manager:
        manager.create_checkpoint("a", {})

    ended = called(tmp_path / "state")

    assert ended.code == 1
    assert ended.lines[0].startswith("TOO NEW: 1 of 1 checkpoint in ")
    assert f"only version {schema.version + 1} or later may read; this installation has version" in ended.out
    assert called("list", "--json", tmp_path / "state").document["checkpoints"][0]["version"] == schema.version + 2
    assert called("show", tmp_path / "state" / "a.json").code == 0


@pytest.mark.parametrize("kind", ["ClaimInfo", "Lease"])
def test_a_newer_version_that_may_be_read_and_a_kind_of_another_program_are_good(tmp_path: Path, kind: str) -> None:
    readable_by = CLAIMS.version if kind == "ClaimInfo" else 99
    with CheckpointManager(tmp_path / "state", Schema(kind, version=99, readable_by=readable_by)) as manager:
        manager.create_checkpoint("a", {})

    assert called("--strict", tmp_path / "state").code == 0


def test_a_single_file_is_judged_with_its_directory_but_a_copy_elsewhere_is_not(
    reachable_directory: Path, tmp_path: Path
) -> None:
    os.chown(reachable_directory, NOBODY, NOBODY)
    copy = tmp_path / "claim-1.json"
    copy.write_bytes((reachable_directory / "claim-1.json").read_bytes())

    assert called(reachable_directory / "claim-1.json").lines[0].startswith("NOT USABLE: ")
    assert called(copy).code == 0


def test_the_metrics_count_what_is_not_usable(tmp_path: Path) -> None:
    directory = make(tmp_path / "claims")
    directory.chmod(0o777)

    called("-q", "--prometheus", tmp_path / "m.prom", directory)

    assert f'checkpointmanager_not_usable{{directory="{directory}"}} 1\n' in (tmp_path / "m.prom").read_text()
