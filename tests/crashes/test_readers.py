"""A reader beside an owner that opens: it sees what was committed, before, while and after the names are put right."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from checkpointmanager import CheckpointManager
from checkpointmanager._filestore.journalfile import JournalFile
from checkpointmanager.testing import Call, watching

from .journal_scenarios import COMMITTED, MIDDLE
from .oracle import Values, folder_of
from .scenarios import new, three_closed


def seen(directory: Path) -> Values:
    with CheckpointManager[Any](folder_of(directory), read_only=True) as reader:
        found = {key: reader.get_checkpoint(key, None) for key in reader}  # one that is removed now may be listed
    return frozenset((key, checkpoint.data) for key, checkpoint in found.items() if checkpoint)


def differing(directory: Path) -> Iterator[Call]:
    """The calls of an open and a close before which a reader sees something else than before all of them."""
    expected = seen(directory)
    found: list[Call] = []

    def look(call: Call) -> None:
        if seen(directory) != expected:
            found.append(call)

    with watching(directory, before=look) as calls:
        new(directory).close()
    assert len(calls) > 20
    assert seen(directory) == expected
    yield from found


@pytest.mark.parametrize("death", [MIDDLE, COMMITTED], ids=["before the commit", "after the commit"])
def test_a_reader_sees_the_same_at_every_call_of_an_open_and_a_close(tmp_path: Path, death: Any) -> None:
    tmp_path.chmod(0o700)
    death(three_closed(tmp_path))
    assert not list(differing(tmp_path))


def test_an_owner_that_takes_the_lock_too_early_is_noticed(tmp_path: Path) -> None:
    """Readers would trust names that are not right yet."""
    tmp_path.chmod(0o700)
    COMMITTED(three_closed(tmp_path))
    put_in_place = JournalFile.put_in_place

    def lock_first(self: JournalFile) -> None:
        self.lock()
        put_in_place(self)

    with mock.patch.object(JournalFile, "put_in_place", lock_first):
        assert list(differing(tmp_path))
