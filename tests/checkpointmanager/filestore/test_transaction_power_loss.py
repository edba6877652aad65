"""Power cuts under transactions on a real file system: the last is whole or absent, no acknowledged one is lost."""

from __future__ import annotations

import itertools
import os
import random
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from checkpointmanager import CheckpointManager

from ...long import times
from ..processes import LIMIT, Child
from ..volume import Volume, mounted

CUTS = times(10, 300)
KEYS = ["a", "b", "c", "d"]


@pytest.fixture(params=["ext4", "xfs"])
def volume(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Volume]:
    with mounted(tmp_path, request.param) as volume:
        yield volume


def outcome_of(number: int) -> dict[str, int]:
    """What transaction `number` leaves: it removes one key, creates another, and replaces the rest."""
    return {key: number for key in KEYS if key != KEYS[number % len(KEYS)]} if number else {}


def transact_without_end(directory: Path, say: int, *, first: int, **options: Any) -> None:
    dice = random.Random(first)
    with CheckpointManager[Any](directory, **options) as manager:
        for number in itertools.count(first):
            os.write(say, f"begin {number}\n".encode())
            after = outcome_of(number)
            with manager.transaction() as transaction:
                for key in KEYS:
                    if key in after:
                        transaction.create_checkpoint(key, [number, "x" * dice.randrange(6000)])
                    else:
                        transaction.remove_checkpoint(key)
            os.write(say, f"done {number}\n".encode())


def numbers(output: bytes, word: bytes) -> list[int]:
    return [int(line.split()[1]) for line in output.split(b"\n")[:-1] if line.startswith(word)]


def found_in(directory: Path, *, read_only: bool = False) -> dict[str, int]:
    with CheckpointManager[Any](directory, read_only=read_only) as manager:
        loaded = manager.load()
        assert not loaded.problems
        return {key: found.data[0] for key, found in loaded.checkpoints.items()}


@pytest.mark.parametrize("options", [{}, {"sharing": True}], ids=["owner", "sharer"])
def test_no_power_cut_leaves_half_of_a_transaction_or_loses_one(volume: Volume, options: dict[str, bool]) -> None:
    directory = volume.path / "claims"
    last = acknowledged = 0
    for cut in range(CUTS):
        dice = random.Random(cut)
        wanted = dice.randrange(1, 12)
        output = b""
        with Child(partial(transact_without_end, directory, first=last + 1, **options)) as writer:
            while len(done := numbers(output, b"done")) < wanted:
                piece = writer.read(LIMIT)
                assert piece, "the writer has ended, or hangs"
                output += piece
            output += writer.read(dice.random() * 0.004)
            done = numbers(output, b"done")
            volume.cut()
            writer.kill()
            output += writer.read_to_end()
        volume.unmount()
        volume.mount()
        acknowledged += len(done)
        seen = found_in(directory, read_only=True)
        assert found_in(directory) == seen
        last = max(seen.values())
        assert seen == outcome_of(last), f"half of a transaction after cut {cut}"
        assert last >= max(done), f"an acknowledged transaction is lost after cut {cut}"
        assert last in numbers(output, b"begin")
    print(f"{CUTS} cuts, {acknowledged} transactions")
