"""The generation of a write over damaged bytes is above all earlier ones, wherever they can be learned from."""

from __future__ import annotations

from pathlib import Path

import pytest

from ..leases import NEW, OLD, LeaseManager

HEADER_ONLY = 250  # bytes: the header is whole, the data is cut


@pytest.fixture
def file(directory: Path, manager: LeaseManager) -> Path:
    """Generation 3, with generation 2 beside it."""
    for seconds in (1, 2, 3):
        manager.create_checkpoint("pod-7", type(OLD)("old", seconds))
    return directory / "pod-7.json"


def _damage(file: Path, manager: LeaseManager, blob: bytes) -> None:
    file.write_bytes(blob)
    manager.verify()  # makes the manager forget what it knows of the key


def test_a_damaged_header_states_it_where_there_is_no_previous_generation(file: Path, manager: LeaseManager) -> None:
    file.with_name(".previous-pod-7").unlink()
    _damage(file, manager, file.read_bytes()[:HEADER_ONLY])

    assert manager.create_checkpoint("pod-7", NEW).generation == 4


def test_the_previous_generation_shows_it_where_the_file_states_nothing(file: Path, manager: LeaseManager) -> None:
    _damage(file, manager, b"\0" * 100)

    assert manager.create_checkpoint("pod-7", NEW).generation == 4


def test_the_higher_of_the_two_counts(file: Path, manager: LeaseManager) -> None:
    blob = file.read_bytes()
    _damage(file, manager, blob.replace(b'"generation":3', b'"generation":9')[:HEADER_ONLY])
    assert manager.create_checkpoint("pod-7", NEW).generation == 10

    _damage(file, manager, blob.replace(b'"generation":3', b'"generation":1')[:HEADER_ONLY])
    assert manager.create_checkpoint("pod-7", OLD).generation > 2


def test_it_starts_anew_where_nothing_is_known(file: Path, manager: LeaseManager) -> None:
    file.with_name(".previous-pod-7").unlink()
    _damage(file, manager, b"\0" * 100)

    assert manager.create_checkpoint("pod-7", NEW).generation == 1


def test_a_previous_generation_of_another_key_does_not_count(
    file: Path, manager: LeaseManager, directory: Path
) -> None:
    for seconds in range(9):
        manager.create_checkpoint("other", type(OLD)("other", seconds))
    _damage(file, manager, b"")
    file.with_name(".previous-pod-7").write_bytes((directory / "other.json").read_bytes())

    assert manager.create_checkpoint("pod-7", NEW).generation == 1
