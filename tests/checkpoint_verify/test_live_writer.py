"""Beside a working agent: its files are never called damaged, and the check never disturbs it."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from checkpoint_verify.findings import disk
from checkpointmanager import CheckpointManager

from .command import called, environment
from .state import CLAIMS, claim, make

WRITER = """
import itertools, sys
from checkpointmanager import CheckpointManager, Schema
with CheckpointManager(sys.argv[1], Schema("ClaimInfo", version=3), owner="the agent") as manager:
    print("ready", flush=True)
    for number in itertools.count():
        key = f"claim-{number % 4}"
        if number % 7 == 6:
            manager.remove_checkpoint(key)
        else:
            manager.create_checkpoint(key, {"number": number, "filler": "x" * (number % 5000)})
"""


@pytest.fixture
def writer_process(tmp_path: Path) -> Iterator[tuple[Path, int]]:
    """A directory in which a process writes until it is killed."""
    directory = make(tmp_path / "claims")
    with subprocess.Popen(
        [sys.executable, "-c", WRITER, str(directory)], stdout=subprocess.PIPE, env=environment()
    ) as process:
        assert process.stdout
        assert process.stdout.readline() == b"ready\n"
        yield directory, process.pid
        assert process.poll() is None, "the writer was disturbed"
        process.kill()


def test_many_looks_at_a_busy_directory_find_no_damage_and_no_leftovers(writer_process: tuple[Path, int]) -> None:
    directory, pid = writer_process

    for _ in range(20):
        ended = called("--json", "--strict", directory)

        assert ended.code == 0, ended.document["problems"]
        lock = ended.document["paths"][0]["lock"]
        assert (lock["state"], lock["pids"], lock["holder"]["owner"]) == ("held", [pid], "the agent")


def test_list_and_bundle_beside_a_writer(writer_process: tuple[Path, int], tmp_path: Path) -> None:
    directory, _ = writer_process

    for number in range(2):
        assert called("list", directory).code == 0
        bundle = tmp_path / f"{number}.tar"
        assert called("bundle", directory, bundle).code == 0
        assert called(bundle).code == 0


def test_bundle_skips_what_is_removed_while_it_reads(
    directory: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, done = disk.look, list[str]()

    def removed_after_the_verdict(path: str, folder: int | None = None) -> disk.Look:
        if folder is None and path.endswith("claim-1.json"):
            Path(path).unlink()
            done.append(path)
        return real(path, folder)

    monkeypatch.setattr(disk, "look", removed_after_the_verdict)

    assert "3 checkpoints" in called("bundle", directory, tmp_path / "claims.tar").out
    assert done


def test_a_temp_file_is_left_over_only_if_no_process_can_be_writing_it(directory: Path) -> None:
    temp = directory / ".tmp-now-1"
    temp.write_bytes(b"half")

    def count() -> int:
        return int(called("--json", directory).document["paths"][0]["temp_files"])

    assert count() == 1
    with CheckpointManager(directory, owner="the agent"):
        temp.write_bytes(b"half")
        assert count() == 0
        os.utime(temp, (0, 0))
        assert count() == 1


def test_the_kernel_names_the_holder_of_the_lock_when_the_lock_file_does_not(directory: Path) -> None:
    with CheckpointManager(directory):
        (directory / ".lock").write_bytes(b"")
        lock = called("--json", directory).document["paths"][0]["lock"]

    assert (lock["state"], lock["pids"], lock["holder"]) == ("held", [os.getpid()], None)


def test_header_and_data_are_of_one_generation_however_often_the_file_is_replaced(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, other = directory / "claim-0.json", directory / ".previous-claim-0"
    written = {2: claim(0) | {"pods": ["pod-0", "pod-9"]}, 1: claim(0)}
    real = disk.look

    def replaced_after(*arguments: Any) -> disk.Look:
        look = real(*arguments)
        swapped = path.read_bytes()
        other.replace(path)
        other.write_bytes(swapped)
        return look

    monkeypatch.setattr(disk, "look", replaced_after)

    for _ in range(4):
        document = called("show", "--json", path).document
        assert document["data"] == written[document["header"]["generation"]]


@pytest.mark.parametrize("turn", range(3))
def test_after_a_kill_and_a_power_loss_list_bundle_and_the_next_owner_agree(tmp_path: Path, turn: int) -> None:
    directory, bundle = make(tmp_path / "claims"), tmp_path / "claims.tar"
    with subprocess.Popen(
        [sys.executable, "-c", WRITER, str(directory)], stdout=subprocess.PIPE, env=environment()
    ) as process:
        assert process.stdout
        process.stdout.readline()
        while not (directory / ".journal").exists():
            time.sleep(0.01)
        process.kill()
    for number, key in enumerate(called("--json", directory).document["paths"][0]["journal"]["keys"]):
        path = directory / f"{key}.json"
        if path.exists() and (number + turn) % 3 == 0:
            os.truncate(path, 30)
        elif (number + turn) % 3 == 1:
            path.unlink(missing_ok=True)

    listed = called("list", "--json", directory).document["checkpoints"]
    assert called("bundle", directory, bundle).code == 0
    bundled = called("list", "--json", bundle).document["checkpoints"]

    with CheckpointManager(directory, CLAIMS) as manager:
        served = {key: one.generation for key, one in manager.load().checkpoints.items()}
    for rows in (listed, bundled):
        assert {row["key"]: row["generation"] for row in rows} == served
