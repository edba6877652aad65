"""A key with a spare and a member of an unfinished transaction: verify names the generation that a reader gets."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from checkpointmanager import CheckpointManager, CheckpointNotFound, TransactionFailed
from checkpointmanager._format.envelope import open_sealed, seal
from checkpointmanager.testing import failing

from .command import called

SPARE = ".spare-dead-1"


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """Key a has generation 1 in its file and 3 in a spare, as after a power loss; key b has generation 1."""
    directory = tmp_path / "claims"
    with CheckpointManager(directory) as manager:
        manager.create_checkpoint("a", "first")
        manager.create_checkpoint("b", "first")
        first = (directory / "a.json").read_bytes()
        manager.create_checkpoint("a", "second")
        manager.create_checkpoint("a", "third")
    lose_the_name(directory, first)
    return directory


def lose_the_name(directory: Path, name_has: bytes) -> None:
    """The bytes of the last update are on the disk, but under the name of a spare."""
    (directory / "a.json").rename(directory / SPARE)
    (directory / "a.json").write_bytes(name_has)
    (directory / ".previous-a").unlink(missing_ok=True)
    (directory / ".spares").write_text("another boot\n")


def leave_transaction(directory: Path, *, removing: bool = False) -> None:
    """The owner first puts generation 3 in its place; then its transaction is committed, but not completed."""
    first = (directory / "a.json").read_bytes()
    with (
        CheckpointManager(directory) as manager,
        failing(directory, "rename", errno.EIO, about="a.json"),
        pytest.raises(TransactionFailed, match="is committed"),
        manager.transaction() as transaction,
    ):
        if removing:
            transaction.remove_checkpoint("a")
        else:
            transaction.create_checkpoint("a", "fourth")
        transaction.create_checkpoint("b", "second")
    lose_the_name(directory, first)


def generation_that_a_reader_gets(directory: Path) -> int:
    with CheckpointManager(directory, read_only=True) as manager:
        return manager.get_checkpoint("a").generation


def generations_after_recovery(directory: Path) -> tuple[int, int]:
    CheckpointManager(directory).close()
    current, previous = (open_sealed((directory / name).read_bytes(), "a")[0] for name in ("a.json", ".previous-a"))
    return current.generation, previous.generation


def warnings_in(directory: Path) -> list[str]:
    return [line for line in called(directory).lines if line.startswith("warning: ")]


def test_the_newer_generation_is_in_the_transaction_and_the_spare_becomes_the_previous_one(directory: Path) -> None:
    leave_transaction(directory)

    warnings = warnings_in(directory)

    [newer] = [line for line in warnings if "a newer generation is waiting" in line and "/a.json: " in line]
    assert newer.startswith(f"warning: {directory}/a.json: unfinished-transaction: ")
    assert "a newer generation is waiting, 4 in .tmp-" in newer
    assert [
        line for line in warnings if f"a.json: generation 3 is waiting in {SPARE}; it will become the previous" in line
    ]
    assert [line for line in warnings if "(a, b) is not finished: 2 newer generations waiting" in line]
    assert not [line for line in warnings if "temp-files" in line]
    assert generation_that_a_reader_gets(directory) == 4
    assert generations_after_recovery(directory) == (4, 3)
    assert warnings_in(directory) == []


def test_damaged_bytes_under_the_name_change_nothing_in_that(directory: Path) -> None:
    leave_transaction(directory)
    (directory / "a.json").write_bytes(b"rot")

    warnings = warnings_in(directory)

    assert [line for line in warnings if "/a.json: " in line and "a newer generation is waiting, 4 in .tmp-" in line]
    assert [line for line in warnings if f"generation 3 is waiting in {SPARE}; it will become the previous" in line]
    assert generation_that_a_reader_gets(directory) == 4
    assert generations_after_recovery(directory) == (4, 3)


def test_a_removal_in_the_transaction_wins_over_the_spare(directory: Path) -> None:
    leave_transaction(directory, removing=True)

    warnings = warnings_in(directory)

    assert [
        line for line in warnings if f"generation 3 is waiting in {SPARE}, but the unfinished transaction rem" in line
    ]
    assert [line for line in warnings if "(a, b) is not finished: 1 removal waiting" in line]
    assert not [line for line in warnings if "a newer generation is waiting" in line and "a.json" in line]
    with pytest.raises(CheckpointNotFound):
        generation_that_a_reader_gets(directory)


def test_a_spare_wins_over_a_completed_transaction_whose_record_came_back(directory: Path) -> None:
    leave_transaction(directory)
    record = (directory / ".transaction").read_bytes()
    with CheckpointManager(directory) as manager:
        fourth = (directory / "a.json").read_bytes()
        manager.create_checkpoint("a", "fifth")
    lose_the_name(directory, fourth)
    (directory / ".transaction").write_bytes(record)

    warnings = warnings_in(directory)

    assert [line for line in warnings if f"a.json: a newer generation is waiting, 5 in {SPARE}; readers" in line]
    assert [line for line in warnings if "is not finished: everything is in place, and only its record is left" in line]
    assert sum("a newer generation is waiting" in line for line in warnings) == 1
    assert generation_that_a_reader_gets(directory) == 5


def test_a_spare_with_a_higher_generation_than_the_transaction_wins(directory: Path) -> None:
    leave_transaction(directory)
    header, data = open_sealed((directory / SPARE).read_bytes(), "a")
    (directory / SPARE).write_bytes(seal(header._replace(generation=9), bytes(data)))

    warnings = warnings_in(directory)

    assert [line for line in warnings if f"a.json: a newer generation is waiting, 9 in {SPARE}; readers" in line]
    assert [line for line in warnings if "(a, b) is not finished: 1 newer generation waiting" in line]
    assert generation_that_a_reader_gets(directory) == 9


def test_a_record_whose_files_never_reached_the_disk_counts_for_nothing(directory: Path) -> None:
    leave_transaction(directory)
    for file in directory.glob(".tmp-*"):
        file.unlink()

    warnings = warnings_in(directory)

    assert [line for line in warnings if f"a.json: a newer generation is waiting, 3 in {SPARE}; readers" in line]
    assert not [line for line in warnings if "transaction" in line]
    assert generation_that_a_reader_gets(directory) == 3


def test_a_record_with_a_flipped_bit_is_mended_as_the_library_does_it(directory: Path) -> None:
    leave_transaction(directory)
    blob = bytearray((directory / ".transaction").read_bytes())
    blob[100] ^= 1
    (directory / ".transaction").write_bytes(blob)

    warnings = warnings_in(directory)

    assert [line for line in warnings if "a newer generation is waiting, 4 in .tmp-" in line]
    assert generation_that_a_reader_gets(directory) == 4
