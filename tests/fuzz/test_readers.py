"""No bytes make a reader raise anything but its own errors: the saved corpus, then as many as hypothesis thinks of."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from checkpointmanager import CheckpointError, CheckpointManager
from draState import CLAIMS

from ..checkpoint_verify.command import called
from ..long import LONG, times
from . import inputs, seeds, targets

fuzzed = settings(
    max_examples=times(150, 200_000),
    deadline=None,
    derandomize=not LONG,
    database=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.function_scoped_fixture],
)
COMMANDS = ("verify", "show", "diagnose", "list")
LARGEST_FOR_KUBELET = 1500  # bytes: the small files under tests/data cover every form


@pytest.mark.parametrize("name", targets.TARGETS)
def test_every_input_of_the_corpus_is_read_or_refused(name: str) -> None:
    tried = [seed for seed in seeds.of(name) if name != "kubelet" or len(seed) <= LARGEST_FOR_KUBELET]
    assert tried
    for seed in tried:
        targets.TARGETS[name](seed)


@fuzzed
@given(inputs.checkpoints)
def test_any_file_is_decoded_or_refused(blob: bytes) -> None:
    targets.decode(blob)
    targets.decode_body(blob)
    targets.holder(blob)


@fuzzed
@given(st.integers(0, 255), inputs.json_texts | st.binary(max_size=64))
def test_any_data_is_decoded_or_refused(choice: int, data: bytes) -> None:
    targets.decode_data(choice, data)


@fuzzed
@given(st.integers(0, len(targets.KINDS) - 1), inputs.kubelet_files)
def test_any_kubelet_file_is_judged(kind: int, blob: bytes) -> None:
    targets.kubelet(bytes([kind]) + blob)
    targets.dra_state(blob)


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """With one good claim; tests add the others."""
    with CheckpointManager(tmp_path / "claims") as manager:
        manager.create_checkpoint("good", {"any": "thing"})
    return tmp_path / "claims"


@pytest.mark.parametrize("read_only", [False, True], ids=["owner", "reader"])
@settings(fuzzed, max_examples=times(50, 20_000))
@given(current=inputs.checkpoints, previous=inputs.checkpoints)
def test_a_manager_reads_removes_and_replaces_any_file(
    directory: Path, read_only: bool, current: bytes, previous: bytes
) -> None:
    (directory / f"{targets.KEY}.json").write_bytes(current)
    (directory / f".previous-{targets.KEY}").write_bytes(previous)
    with CheckpointManager(directory, CLAIMS, durability="atomic", read_only=read_only) as manager:
        manager.load()
        manager.verify()
        manager.previous_checkpoint(targets.KEY)
        if read_only:
            return
        for cure in (
            lambda: manager.recover_checkpoint(targets.KEY),
            lambda: manager.recover_checkpoint(targets.KEY, rollback=True),
        ):
            _tried(cure)
        manager.remove_checkpoint(targets.KEY)
        assert targets.KEY not in manager


@contextmanager
def _recursion_limit_kept() -> Iterator[None]:
    """The command raises it for its own process, and hypothesis objects."""
    limit = sys.getrecursionlimit()
    try:
        yield
    finally:
        sys.setrecursionlimit(limit)


def _tried(cure: Callable[[], object]) -> None:
    with suppress(CheckpointError):
        cure()


@settings(fuzzed, max_examples=times(30, 5_000))
@given(st.sampled_from(COMMANDS), st.sampled_from(targets.KINDS), inputs.checkpoints | inputs.kubelet_files)
def test_the_command_has_an_answer_for_any_file(
    tmp_path_factory: pytest.TempPathFactory, command: str, name: str, blob: bytes
) -> None:
    folder = tmp_path_factory.mktemp("state")
    (folder / (name or f"{targets.KEY}.json")).write_bytes(blob)
    (folder / ".lock").write_bytes(blob[:4096])
    for target in (folder, *folder.glob("[!.]*")):
        if command in ("show", "diagnose") and target == folder:
            continue
        with _recursion_limit_kept():
            ended = called(command, target)
        assert ended.code in (0, 1), (command, ended.err)
        assert "internal error" not in ended.err
