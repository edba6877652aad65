"""Lets one sync commit the changes of every thread that waits for it.

A thread that finds no open group leads one: it waits for its turn to write, while others join, and writes for all. It
holds `over` from before anybody can join until the outcome is known, and every member waits for that lock. All locks
are C objects in plain with statements, so a signal handler that raises leaves none of them held.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from .._interruption import pass_on_interruption
from ..format import Change
from .names import Staged

GROUP_BYTES = 4 << 20  # of one group, unless a single call has more


class Inherited(NamedTuple):
    """What a journal says about a key whose files cannot be read or replaced at the moment."""

    changes: Sequence[Change]


class Group:
    """Submissions that are committed together, with one sync and one outcome."""

    def __init__(self) -> None:
        self.over = threading.Lock()  # held by the leader until the outcome is known
        self.members: list[Submission] = []  # guarded by the desk
        self.size = 0  # likewise
        self.begun = False  # bytes may have reached the disk: unless it is committed, the group is in doubt
        self.committed = False
        self.error: OSError | None = None
        self.has_ended = False
        self.seconds = 0.0  # that the sync took

    def is_under_way(self) -> bool:
        """True while the outcome may still become known. Members that wait take `over` for a moment, too."""
        return not self.has_ended and self.over.locked()


class Submission:
    """The changes of one call. After the commit each waits until it has its name."""

    def __init__(self, waiting: Mapping[str, Staged | Inherited], lines: bytes, *, together: bool = False) -> None:
        self.keys = tuple(waiting)
        self.waiting = dict(waiting)  # by key; guarded by `placing` once it is committed
        self.lines = lines
        self.together = together
        self.group = _NONE
        self.is_taken = False  # by the leader of its group: from then on it may be committed; guarded by the desk
        self.placing = threading.Lock()
        self.was_tried = False  # some names may have been changed already; guarded by `placing`


_NONE, _EARLIER = Group(), Group()  # before a submission has a group; of what was committed by other means
_EARLIER.committed = True


class GroupCommit:
    """The groups of one journal, and what they owe: changes that are submitted and not known to have their names."""

    def __init__(self, write: Callable[[Group, Sequence[Submission]], None]) -> None:
        self.turn = threading.Lock()  # held by the one thread that writes, settles or closes
        self._write = write  # commits the members of a group; called while holding `turn`
        self._desk = threading.Lock()  # guards what follows
        self._open: Group | None = None
        self._owed: dict[str, Submission] = {}  # by key

    def submit(self, submission: Submission) -> Group:
        """Lead a group or join one; returns it when its outcome is known."""
        while True:
            mine = Group()
            with mine.over:
                group, has_joined = self._join_or_open(mine, submission)
                if group is mine:
                    self._lead(mine)
            if group is not mine:
                with group.over:  # waits for the leader
                    pass
            if has_joined and (group.begun or group.error):
                return group
            self._close(group)  # full, or its leader was interrupted before it began: try again

    def withdraw(self, submission: Submission) -> bool:
        """True if it will never be committed. False if its leader has it: it may be, and then its names are owed."""
        with self._desk:
            if submission.is_taken:
                return False
            if submission in submission.group.members:
                submission.group.members.remove(submission)
        self.forget(submission)
        return True

    def owed(self, key: str) -> Submission | None:
        return self._owed.get(key)

    def owed_and_committed(self) -> list[Submission]:
        if not self._owed:
            return []
        with self._desk:
            return [each for each in set(self._owed.values()) if each.group.committed]

    def owe(self, key: str, changes: Sequence[Change]) -> None:
        """Committed earlier, perhaps by another process, and not to be put in place now."""
        submission = Submission({key: Inherited(changes)}, b"")
        submission.group = _EARLIER
        with self._desk:
            self._owed[key] = submission

    def forget(self, submission: Submission, keys: Iterable[str] | None = None) -> None:
        """Nothing is owed for these keys any more, by default for all."""
        with self._desk:
            for key in submission.keys if keys is None else keys:
                if self._owed.get(key) is submission:
                    del self._owed[key]

    def _join_or_open(self, mine: Group, submission: Submission) -> tuple[Group, bool]:
        with self._desk:
            group = self._open
            if group is None:
                group = self._open = mine
            elif group.size + len(submission.lines) > GROUP_BYTES:
                return group, False
            group.members.append(submission)
            group.size += len(submission.lines)
            submission.group, submission.is_taken = group, False
            for key in submission.waiting:
                self._owed[key] = submission
        return group, True

    def _lead(self, group: Group) -> None:
        try:
            with self.turn:
                members = self._take(group)
                try:
                    self._write(group, members)
                except OSError as error:
                    pass_on_interruption(error)
                    group.error = error
        finally:
            group.has_ended = True
            self._close(group)

    def _take(self, group: Group) -> Sequence[Submission]:
        """From now on nobody joins and nobody withdraws."""
        with self._desk:
            self._open = None
            for member in group.members:
                member.is_taken = True
            return group.members

    def _close(self, group: Group) -> None:
        with self._desk:
            if self._open is group:
                self._open = None


def waiting_changes(submissions: Iterable[Submission]) -> list[Change]:
    """Every change that has not got its name yet."""
    found: list[Change] = []
    for submission in submissions:
        for waiting in list(submission.waiting.values()):
            found.extend(waiting.changes if isinstance(waiting, Inherited) else (waiting.change,))
    return found
