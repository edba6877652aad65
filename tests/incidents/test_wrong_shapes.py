"""Files whose bytes are as they were written, but not what the program takes them for."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from checkpointmanager import CheckpointManager, Reason, Schema, SchemaMismatch
from checkpointmanager.testing import damage

from .sandboxes import reason_for


@dataclass
class Assignments:
    default: str = ""
    entries: dict[str, str] = field(default_factory=dict)


def test_kubernetes_139050_nothing_is_decoded_from_a_file_that_does_not_verify(directory: Path) -> None:
    """An object half filled from a file with a bad checksum was used again for the older form: a hybrid state."""
    state = Assignments()
    for attempt in ('{"default":"0-9"}', '{"entries":{"pod":"4"}}'):  # as version 2: bad checksum; so, as version 1
        vars(state).update(json.loads(attempt))
    assert state == Assignments("0-9", {"pod": "4"}), "the way that failed: what was bad is still in it"

    decoded: list[Any] = []

    def decode(data: Any) -> Any:
        decoded.append(data)
        return data

    schema: Schema[Any] = Schema("Cpus", version=2, encode=lambda data: data, decode=decode)
    with CheckpointManager(directory, schema) as manager:
        for data in ({"default": "0-3"}, {"default": "0-1"}):
            manager.create_checkpoint("cpus", data)
        decoded.clear()
        damage.flip_bit(directory, "cpus")

        assert reason_for(manager.load().problems["cpus"]) is Reason.CHECKSUM_MISMATCH
        assert decoded == [], "not a byte of it was looked at"

        before = manager.previous_checkpoint("cpus")
        assert before is not None
        assert before.data == {"default": "0-3"}, "an older form is read for itself, into an object of its own"


NULLS: list[Callable[[dict[str, Any]], Any]] = [
    lambda _: None,
    lambda data: data | {"entries": None},
    lambda data: data | {"entries": {"pod": None}},
    lambda data: data | {"entries": []},
    lambda data: [data],
]


@pytest.mark.parametrize("spoil", NULLS, ids=["null", "null member", "null value", "list for dict", "list"])
def test_kubernetes_140904_null_is_refused_when_it_is_read_not_when_it_is_used(
    directory: Path, spoil: Callable[[dict[str, Any]], Any]
) -> None:
    """A checkpoint with "null" in it decoded without complaint and panicked at the first update."""
    good = {"default": "0-3", "entries": {"pod": "4"}}
    with CheckpointManager(directory, Schema("Cpus")) as careless:
        careless.create_checkpoint("bad", spoil(good))
        careless.create_checkpoint("good", good)

    with CheckpointManager(directory, Schema("Cpus", type=Assignments)) as manager:
        loaded = manager.load()

        assert isinstance(loaded.problems["bad"], SchemaMismatch)
        loaded.checkpoints["good"].data.entries["new"] = "5"
        manager.update_checkpoint("good", lambda cpus: Assignments(cpus.default, cpus.entries | {"new": "5"}))
        assert manager.verify().intact == 2, "the bytes of both are as they were written"
