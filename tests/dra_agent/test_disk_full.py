"""A disk that is full while claims are prepared: a small tmpfs, which only root may mount."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from dra_agent.rehearsal import Node
from draState.plugin.rehearsal import LocalApiServer

from .conversation import claim_for, devices_of, prepare, unprepare, until


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    if os.geteuid():
        pytest.skip("only root may mount a small disk")
    mounted_at = tmp_path / "disk"
    mounted_at.mkdir(mode=0o700)
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=256k,mode=0700", "tmpfs", mounted_at], check=False)
    if mounted.returncode:
        pytest.skip("mounting is not allowed here")
    try:
        yield mounted_at
    finally:
        subprocess.run(["umount", "-l", mounted_at], check=True)


def fill(directory: Path) -> Path:
    filler = directory / ".filler"
    with filler.open("wb", buffering=0) as file:
        try:
            while True:
                file.write(bytes(4096))
        except OSError:
            return filler


def test_the_claim_fails_the_others_go_on_and_all_is_well_when_there_is_space(
    cluster: LocalApiServer, small_disk: Path
) -> None:
    with Node(cluster.address, state=small_disk) as node:
        agent = node.start()
        first, second = claim_for(cluster, node, "a", "gpu-0"), claim_for(cluster, node, "b", "gpu-1")
        third = claim_for(cluster, node, "c", "gpu-2")
        for claim in (first, third):
            assert prepare(node, claim).devices
        filler = fill(small_disk)

        failed = prepare(node, second)
        assert "No space left on device" in failed.error
        assert str(node.file_of("b")) in failed.error
        assert devices_of(prepare(node, first)) == ["gpu-0"], "prepared claims are still answered"
        until(lambda: agent.get("/readyz")[0] == 503)
        assert f"{small_disk}: claims cannot be written: No space left" in agent.details()["reason"]
        assert node.cdi_holdings() == node.holdings() == {"a": ("gpu-0",), "c": ("gpu-2",)}

        assert unprepare(node, third) == "", "unpreparing needs no space"
        filler.unlink()
        until(lambda: agent.get("/readyz")[0] == 200)
        assert devices_of(prepare(node, second)) == ["gpu-1"]
        assert agent.terminate() == 0
        assert node.holdings() == {"a": ("gpu-0",), "b": ("gpu-1",)}


def test_it_starts_on_a_full_disk(cluster: LocalApiServer, small_disk: Path) -> None:
    with Node(cluster.address, state=small_disk) as node:
        agent = node.start()
        claim = claim_for(cluster, node, "a", "gpu-0")
        first = prepare(node, claim)
        fill(small_disk)
        agent.kill()
        agent = node.start(wait=False)
        assert prepare(node, claim) == first
        assert unprepare(node, claim) == "", "removing the previous generation makes room for the new record"
        assert node.holdings() == {}
