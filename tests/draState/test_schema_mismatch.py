"""Whole files that the program cannot use, after an upgrade without its migration: not lost, not trusted, untouched."""

from __future__ import annotations

from pathlib import Path

from checkpointmanager import CheckpointManager, Schema, SchemaMismatch
from draState import CLAIMS, POD_CONFIGS

from .claims import info_of
from .node import Node
from .podconfigs import filled, mtus, opened


def misfit(directory: Path, kind: str, version: int, key: str) -> bytes:
    """Writes data of this kind and version that fits no class here; returns the file."""
    with CheckpointManager(directory, Schema(kind, version)) as program:
        program.create_checkpoint(key, {"devices": "none", "driver_states": "none"})
    return (directory / f"{key}.json").read_bytes()


def test_such_a_claim_is_unknown_and_its_file_stays(node: Node) -> None:
    node.cache.put(info_of("b", ["pod-1"], ["gpu-1"]))
    node.stop()
    before = misfit(node.directory, CLAIMS.kind, CLAIMS.version, "a")

    node.start()

    claim = node.cache.get("a")
    assert claim is not None
    assert claim.unknown
    assert set(node.cache.report().unknown) == {"a"}
    assert "the file is whole" in node.cache.report().unknown["a"]
    assert node.file_of("a").read_bytes() == before
    assert not (node.directory / ".quarantine").exists()


def test_such_a_pod_is_a_problem_and_its_file_stays(directory: Path) -> None:
    filled(directory).close()
    before = misfit(directory, POD_CONFIGS.kind, POD_CONFIGS.version, "pod-3")

    with opened(directory) as store:
        assert set(store.problems) == {"pod-3"}
        assert "the file is whole" in store.problems["pod-3"]
        assert mtus(store).keys() == {"pod-1", "pod-2"}
        assert store.synchronize(lambda: ["pod-1", "pod-2", "pod-3"], complete=True).problems.keys() == {"pod-3"}

    assert (directory / "pod-3.json").read_bytes() == before
    assert not (directory / ".quarantine").exists()


def test_a_misfit_is_what_these_files_are(directory: Path) -> None:
    misfit(directory, CLAIMS.kind, CLAIMS.version, "a")
    with CheckpointManager(directory, CLAIMS) as manager:
        assert isinstance(manager.load().problems["a"], SchemaMismatch)
