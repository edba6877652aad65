"""ANY_KIND: for tools that know no schemas. It reads, recovers and removes whatever is whole, and writes nothing."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from checkpointmanager import (
    ANY_KIND,
    CheckpointManager,
    CorruptCheckpoint,
    Outcome,
    Reason,
    Schema,
    UnstorableValue,
)
from checkpointmanager.testing import damage

from ..leases import NEW, OLD, Lease
from ..samples import HEADER, MEMBERS, with_checksum

KINDS: list[Schema[Any]] = [Schema("Lease", version=1, type=Lease), Schema("Other", version=7, type=Lease)]


@pytest.fixture
def mixed(directory: Path) -> Path:
    """Two kinds, each with two generations."""
    for schema in KINDS:
        with CheckpointManager(directory, schema) as manager:
            manager.create_checkpoint(schema.kind, OLD)
            manager.create_checkpoint(schema.kind, NEW)
    return directory


def test_every_kind_and_version_is_read_and_removed(mixed: Path) -> None:
    with CheckpointManager(mixed, ANY_KIND) as manager:
        assert manager.list_checkpoints() == ["Lease", "Other"]
        assert manager.verify().intact == 2
        loaded = manager.load()
        assert manager.get_checkpoint("Other").data == {"holder": "new", "seconds": 120, "tags": []}
        manager.remove_checkpoint("Lease")
        assert manager.list_checkpoints() == ["Other"]
    assert loaded.problems == {}
    assert {key: found.version for key, found in loaded.checkpoints.items()} == {"Lease": 1, "Other": 7}


@pytest.mark.parametrize("schema", KINDS, ids=repr)
def test_every_kind_is_recovered_as_its_own_program_would(mixed: Path, schema: Schema[Lease]) -> None:
    path = mixed / f"{schema.kind}.json"
    good = path.read_bytes()
    damage.flip_bit(path.parent, path.stem)
    with CheckpointManager(mixed, ANY_KIND) as manager:
        assert manager.plan_recovery(schema.kind).apply().outcome is Outcome.REPAIRED
        assert path.read_bytes() == good
        damage.ruin(path.parent, path.stem)
        assert manager.recover_checkpoint(schema.kind, rollback=True).outcome is Outcome.ROLLED_BACK
    with CheckpointManager(mixed, schema) as manager:
        found = manager.get_checkpoint(schema.kind)
    assert (found.data, found.generation, found.version) == (OLD, 3, schema.version)


def test_nothing_can_be_written(mixed: Path) -> None:
    before = {path.name: path.read_bytes() for path in mixed.iterdir()}
    with CheckpointManager(mixed, ANY_KIND) as manager:
        with pytest.raises(UnstorableValue, match="open the directory with its schema"):
            manager.create_checkpoint("a", {})
        with pytest.raises(UnstorableValue):
            manager.update_checkpoint("Lease", lambda data: data)
        with pytest.raises(UnstorableValue), manager.batch() as batch:
            batch.create_checkpoint("a", {})
    after = {path.name: path.read_bytes() for path in mixed.iterdir()}
    assert after | {".lock": b""} == before | {".lock": b""}


def test_data_that_is_no_json_is_damage_without_a_repair(directory: Path) -> None:
    key = HEADER.key
    directory.mkdir(mode=0o700)
    (directory / f"{key}.json").write_bytes(with_checksum(MEMBERS + b',"data":{"holder":}\n'))
    with CheckpointManager(directory, ANY_KIND) as manager:
        with pytest.raises(CorruptCheckpoint) as caught:
            manager.get_checkpoint(key)
        assert caught.value.reason is Reason.NOT_JSON
        assert manager.plan_recovery(key).outcome is Outcome.HOPELESS


def test_it_has_no_kind_of_its_own(mixed: Path) -> None:
    with CheckpointManager(mixed, Schema("any", type=Lease)) as manager:
        manager.create_checkpoint("a", replace(OLD))
    with CheckpointManager(mixed, ANY_KIND) as manager:
        assert len(manager.load().checkpoints) == 3
    assert repr(ANY_KIND) == "ANY_KIND"
