"""What a committed but incomplete transaction means for its keys, for readers and for the owner that completes it.

The names are read as they are, and the record decides what they mean: the higher generation wins. So the record of a
completed transaction that a power loss brought back changes nothing.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from enum import Enum, auto
from typing import NamedTuple

from .._errors import DirectoryUnusable
from .._format.envelope import open_sealed
from .._format.names import PREVIOUS, SUFFIX, TRANSACTION
from .._format.reason import Damaged, Reason, TooNew
from .._format.record import MAX_RECORD_BYTES, Member, MemberKind, Record, open_record
from .._format.repair import generation_in, repair
from .._store import Current
from .directory import Directory
from .onlooker import Onlooker
from .reading import read_to_judge


class Standing(Enum):
    """How far the change of one member has got."""

    WAITING = auto()  # not applied yet
    DONE = auto()  # applied, perhaps not durably
    PAST = auto()  # something newer is there, or the file was removed by hand
    LOST = auto()  # neither its file nor its checkpoint is there


class Progress(NamedTuple):
    """How far one member of the record has got, and what is under its key's name."""

    member: Member
    standing: Standing
    current: Current
    damage: Reason | None = None

    @property
    def name(self) -> str:
        """The file that counts for the key now. If the key is gone, this is "" or a file that does not exist."""
        if self.standing is not Standing.WAITING:
            return self.member.key + SUFFIX
        return self.member.file


class Unfinished:
    """The record of one directory, as it is on disk."""

    def __init__(self, directory: Directory, onlooker: Onlooker | None = None) -> None:
        self._directory = directory
        self._onlooker = onlooker  # only a reader has one; spares may hold what belongs under a name
        self._last: tuple[object, Record | None] = (None, None)  # the last record read, by the identity of its file

    def is_there(self) -> bool:
        return self._directory.exists(TRANSACTION)

    def read(self) -> Record | None:
        """None if there is no record, or it was withdrawn or never durable. Raises OSError, Damaged and TooNew."""
        try:
            blob = read_to_judge(self._directory, TRANSACTION, MAX_RECORD_BYTES)
        except FileNotFoundError:
            return None
        try:
            record = open_record(blob)
        except Damaged:
            mended = repair(blob)
            if mended is None:
                raise
            record = open_record(mended.blob)
        return record if record and self._was_committed(record) else None

    def progress(self, record: Record) -> Iterator[Progress]:
        """The progress of all members, as their names show it. Raises OSError: an unreadable file proves nothing."""
        for member in record.members:
            yield self.progress_of(member)

    def progress_of(self, member: Member) -> Progress:
        found = self._look(member)
        # The owner may have renamed the file after the look at its new name, so look again.
        return self._look(member) if found.standing is Standing.LOST else found

    def _look(self, member: Member) -> Progress:
        try:
            blob = self._read(member.key)
            generation = open_sealed(blob, member.key)[0].generation
        except FileNotFoundError:
            return Progress(member, self._standing_of_absent(member), Current.ABSENT)
        except Damaged as damage:
            return Progress(member, self._waits(member), Current.DAMAGED, damage.reason)
        except TooNew:
            generation = generation_in(blob)
        if generation < member.generation:
            return Progress(member, self._waits(member), Current.FOUND)
        is_it = generation == member.generation and member.kind is not MemberKind.REMOVE
        return Progress(member, Standing.DONE if is_it else Standing.PAST, Current.FOUND)

    def _read(self, key: str) -> bytes:
        newer = self._onlooker.read(key, previous=False) if self._onlooker else None
        return read_to_judge(self._directory, key + SUFFIX, sys.maxsize) if newer is None else newer

    # For readers

    def name_of(self, key: str, *, previous: bool = False) -> str:
        """The file that counts for a key now; "" or a file that does not exist if there is none."""
        name = PREVIOUS + key if previous else key + SUFFIX
        record = self._seen()
        member = next((member for member in record.members if member.key == key), None) if record else None
        if member is None:
            return name
        progress = self.progress_of(member)
        if not previous:
            return progress.name
        if progress.standing is Standing.DONE and member.kind is MemberKind.CREATE:
            return ""  # perhaps of a checkpoint that was removed before: whoever makes the creation again removes it
        if progress.standing is not Standing.WAITING:
            return name
        if member.kind is MemberKind.REMOVE or progress.current is Current.ABSENT:
            return ""
        return name if progress.current is Current.DAMAGED else key + SUFFIX

    def changes(self) -> dict[str, str]:
        """For each key whose own name does not count, the file that does, or "" if there is none."""
        record = self._seen()
        waiting = [each for each in self.progress(record) if each.standing is Standing.WAITING] if record else []
        return {each.member.key: each.name for each in waiting}

    def _seen(self) -> Record | None:
        """The record, if it counts. One that is damaged does not; the owner reports it when it gives it up."""
        try:
            status = self._directory.stat(TRANSACTION)
        except FileNotFoundError:
            return None
        identity = (status.st_ino, status.st_size, status.st_mtime_ns)
        if identity != self._last[0]:
            try:
                record = self.read()
            except Damaged:
                return None
            except TooNew as too_new:  # it may be committed, so what the names say proves nothing
                why = OSError(None, f"{TRANSACTION}: {too_new}; open it with the release that wrote it")
                raise DirectoryUnusable(self._directory.path, why) from too_new
            if record is None:
                return None
            self._last = (identity, record)
        return self._last[1]

    def _standing_of_absent(self, member: Member) -> Standing:
        if member.kind is MemberKind.REMOVE:
            return Standing.DONE
        return self._waits(member) if member.kind is MemberKind.CREATE else Standing.PAST

    def _waits(self, member: Member) -> Standing:
        if member.kind is MemberKind.REMOVE or self._directory.exists(member.file):
            return Standing.WAITING
        return Standing.LOST

    def _was_committed(self, record: Record) -> bool:
        """False if the power failed before the commit was durable, and kept the record's name but not all files.

        Then no member was applied. Any member that was applied proves that all files once existed.
        """
        standings = {each.standing for each in self.progress(record) if each.member.file}
        return Standing.LOST not in standings or Standing.DONE in standings
