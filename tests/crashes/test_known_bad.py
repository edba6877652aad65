"""Would the proof notice? Each safeguard of the file store is taken away, and one of the scenarios has to fail."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any
from unittest import mock

import pytest

from checkpointmanager._filestore.directory import Directory
from checkpointmanager._filestore.groupcommit import Group, GroupCommit, Submission, submissions
from checkpointmanager._filestore.journal import Journal
from checkpointmanager._filestore.journalfile import JournalFile
from checkpointmanager._filestore.names import Staged
from checkpointmanager._filestore.settling import rewrite_files, sync_files
from checkpointmanager.format import BLOCK_BYTES, JOURNAL, Change, JournalContent, Record, read_journal, seal_record

from .journal_scenarios import JOURNAL_SCENARIOS
from .known_bad import KnownBad, inside, instead_of, loss_found, without
from .scenarios import SCENARIOS

ALL = SCENARIOS | JOURNAL_SCENARIOS
STORE = "checkpointmanager._filestore"
NO_DIRECTORY_SYNC = without(f"{STORE}.directory.Directory.sync")

submit = GroupCommit.submit
begin, renew, inherit = Journal._begin, Journal._renew, Journal.inherit


def with_the_name_taken_away_first() -> AbstractContextManager[Any]:
    """Unlink, then rename: as Windows programs do."""
    rename = Directory.rename

    def unlink_and_rename(self: Directory, old: str, new: str) -> None:
        self.discard(new)
        rename(self, old, new)

    return mock.patch.object(Directory, "rename", unlink_and_rename)


def with_the_file_overwritten_in_place() -> AbstractContextManager[Any]:
    def overwrite(self: Directory, old: str, new: str) -> None:
        with open(os.path.join(self.path, old), "rb") as source, open(os.path.join(self.path, new), "wb") as target:
            target.write(source.read())
            os.fsync(target.fileno())
        self.unlink(old)

    return mock.patch.object(Directory, "rename", overwrite)


def never_in_doubt(self: Journal, group: Group) -> None:
    """A journal whose sync failed is used on."""
    begin(self, group)
    self._doubt = None


def sync_again(self: GroupCommit, submission: Submission, write: Callable[[Group], None]) -> Group:
    """A thread that waited for a group that failed tries a sync of its own, which the kernel answers with success."""
    group = submit(self, submission, write)
    if group.error and group.begun and submission is not group.members[0]:
        lucky = Group()
        lucky.begun = lucky.committed = True
        submission.group = lucky
        return lucky
    return group


def seal_without_generations(changes: Sequence[Change], number: int) -> bytes:
    return seal_record([each._replace(generation=1) if each.blob is None else each for each in changes], number)


def reuse_in_place(self: Journal, *arguments: Any) -> None:
    """The next journal is the old one, from its first block on."""
    if self._file is None or self._doubt:
        renew(self, *arguments)
        return
    self._file._position = BLOCK_BYTES
    self._highest = {}


def trust(directory: Directory, changes: Sequence[Change]) -> None:
    sync_files(directory, changes)


def trust_what_was_inherited(self: Journal, content: JournalContent) -> None:
    inherit(self, content)
    self._distrust = False


def forget_removals(directory: Directory, changes: Sequence[Change]) -> None:
    rewrite_files(directory, [change for change in changes if change.blob is not None])


def one_record_each(staged: Sequence[Staged], numbers: Iterator[int], *, together: bool) -> list[Submission]:
    return submissions(staged, numbers, together=False)


def only_until_the_first_damage(blob: bytes) -> JournalContent:
    whole = read_journal(blob)
    position = BLOCK_BYTES
    records: list[Record] = []
    for record in whole.records:
        if blob.find(record.line) > position:
            break
        records.append(record)
        position = blob.find(record.line) + len(record.line)
        position += -position % BLOCK_BYTES
    return whole._replace(records=tuple(records))


def only_unlink(self: Journal) -> None:
    self._directory.unlink(JOURNAL)
    self._exists = False
    self._directory.sync()


def rename_only(self: JournalFile) -> None:
    self._directory.rename(self._temp, JOURNAL)


def no_copy(*_: Any) -> JournalFile:
    raise OSError(errno.ENOSPC, "no copy")


@contextmanager
def no_copy_and_no_sync() -> Iterator[None]:
    with mock.patch.object(JournalFile, "write", no_copy), mock.patch(f"{STORE}.journalfile.sync"):
        yield


KNOWN_BAD = {
    # Commit
    "the journal is not synced": KnownBad(ALL["two updates"], without(f"{STORE}.journalfile.sync_data")),
    "a journal is used on after a failed sync": KnownBad(
        ALL["in doubt, then calls that write nothing"], instead_of(f"{STORE}.journal.Journal._begin", never_in_doubt)
    ),
    "a waiter of a failed group syncs again": KnownBad(
        ALL["two in doubt, then another write"],
        instead_of(f"{STORE}.groupcommit.GroupCommit.submit", sync_again),
    ),
    "a call that writes nothing is acknowledged after a doubt": KnownBad(
        ALL["in doubt, then calls that write nothing"], without(f"{STORE}.journal.Journal.finish")
    ),
    "a transaction is two records": KnownBad(
        ALL["create and remove together"], instead_of(f"{STORE}.journal.submissions", one_record_each)
    ),
    "a removal has no generation": KnownBad(
        ALL["remove"], instead_of(f"{STORE}.groupcommit.seal_record", seal_without_generations)
    ),
    "generations begin anew while a journal lives": KnownBad(
        ALL["remove, then create again"],
        instead_of(f"{STORE}.journal.Journal.highest_generation", lambda *_: 0),
    ),
    # Settle
    "settle does not sync files": KnownBad(
        ALL["settle, as the journal is full"], without(f"{STORE}.journal.sync_files")
    ),
    "settle does not sync the directory": KnownBad(
        ALL["settle, as the journal is full"], inside((Journal, "_settle_files"), NO_DIRECTORY_SYNC)
    ),
    "settle does not wait for names that are owed": KnownBad(
        ALL["owed, then settle"],
        instead_of(f"{STORE}.owed.Owed.committed", lambda _: []),
    ),
    "a new journal is used before its name is durable": KnownBad(
        ALL["settle, as the journal is full"],
        instead_of(f"{STORE}.journalfile.JournalFile.put_in_place", rename_only),
    ),
    "the old journal is reused in place": KnownBad(
        ALL["settle, then create again"], instead_of(f"{STORE}.journal.Journal._renew", reuse_in_place)
    ),
    "files are trusted after a settle that failed": KnownBad(
        ALL["a settle whose sync of a file fails"], instead_of(f"{STORE}.journal.rewrite_files", trust)
    ),
    "removed names are not made again": KnownBad(
        ALL["a settle that forgets a removal"], instead_of(f"{STORE}.journal.rewrite_files", forget_removals)
    ),
    "removed previous generations are not made again": KnownBad(
        ALL["a settle that forgets a removal"],
        instead_of(f"{STORE}.settling._remove_again", lambda directory, key: directory.unlink(f"{key}.json")),
    ),
    "close only unlinks the journal": KnownBad(
        ALL["close whose sync 2 of names fails, then sharing"], instead_of(f"{STORE}.journal.Journal._end", only_unlink)
    ),
    # Open
    "the journal is not copied before names change": KnownBad(
        ALL["a death before the commit"], inside((Journal, "inherit"), no_copy_and_no_sync)
    ),
    "names change before the copy is durable": KnownBad(
        ALL["a death before the commit"],
        inside((Journal, "inherit"), instead_of(f"{STORE}.journalfile.JournalFile.put_in_place", rename_only)),
    ),
    "an owner trusts the files that it inherits": KnownBad(
        ALL["a settle that fails, then a death"],
        instead_of(f"{STORE}.journal.Journal.inherit", trust_what_was_inherited),
    ),
    "reading stops at the first damaged record": KnownBad(
        ALL["rot of a record"],
        instead_of(f"{STORE}.takeover.read_journal", only_until_the_first_damage),
        restarting=True,
    ),
    "an open without a journal does not sync": KnownBad(
        ALL["a death while sharing, before the sync"], without(f"{STORE}.takeover.sync_names")
    ),
    "a reader ignores the journal": KnownBad(
        ALL["two updates"], instead_of(f"{STORE}.onlooker.Onlooker._waiting", lambda _: {}), restarting=True
    ),
    # The rest
    "new files of the plain way are not synced": KnownBad(
        ALL["write under sharing"], without(f"{STORE}.plain.PlainChanges._sync_files")
    ),
    "names of the plain way are not synced": KnownBad(ALL["write under sharing"], without(f"{STORE}.plain.sync_names")),
    "the name of the directory is not synced": KnownBad(
        ALL["first creation of the directory"], without(f"{STORE}.directory._sync_parent")
    ),
    "copies in quarantine are not synced": KnownBad(ALL["create over damage"], without(f"{STORE}.quarantine.sync")),
    "nothing is copied to quarantine": KnownBad(
        ALL["recover by rollback"], instead_of(f"{STORE}.quarantine.Quarantine.keep", lambda *_, **__: "")
    ),
    "the old name goes first": KnownBad(ALL["write under sharing"], with_the_name_taken_away_first),
    "files are overwritten in place": KnownBad(ALL["write under sharing"], with_the_file_overwritten_in_place),
}


@pytest.mark.parametrize("name", KNOWN_BAD)
def test_a_missing_safeguard_is_noticed(name: str) -> None:
    """test_crashes.py shows that the same scenarios pass with it."""
    assert loss_found(KNOWN_BAD[name])
