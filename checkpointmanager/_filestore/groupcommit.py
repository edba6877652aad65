"""Lets one sync commit the changes of every thread that waits for it.

A thread that finds no open group leads one: it waits for its turn to write, while others join, and writes for all. It
holds `over` from before anybody can join until the outcome is known, and every member waits for that lock. All locks
are C objects in plain with statements, so a signal handler that raises leaves none of them held.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence

from .._interruption import pass_on_interruption
from ..format import Change, seal_record
from .names import Errors, Staged

GROUP_BYTES = 4 << 20  # of one group, unless a single call has more


class Group:
    """Submissions that are committed together, with one sync and one outcome."""

    __slots__ = ("begun", "committed", "error", "failed", "has_ended", "members", "over", "seconds", "size")

    def __init__(self) -> None:
        self.over = threading.Lock()  # held by the leader until the outcome is known
        self.members: list[Submission] = []  # guarded by the desk until the leader takes it
        self.size = 0  # likewise
        self.begun = False  # bytes may have reached the disk: unless it is committed, the group is in doubt
        self.committed = False
        self.error: OSError | None = None
        self.failed: Errors = {}  # changes of a committed group that were not made: only without a journal
        self.has_ended = False
        self.seconds = 0.0  # that the sync took

    def is_under_way(self) -> bool:
        """True while the outcome may still become known. Members that wait take `over` for a moment, too."""
        return not self.has_ended and self.over.locked()


class Submission:
    """The changes of one call: of a transaction, or some or all of a batch."""

    __slots__ = ("group", "is_taken", "lines", "placing", "staged", "together", "waiting", "was_tried")

    def __init__(self, staged: Sequence[Staged], lines: bytes, *, together: bool = False) -> None:
        self.staged = staged
        self.lines = lines  # of the journal
        self.together = together
        self.group = _NONE
        self.is_taken = False  # by the leader of its group: from then on it may be committed; guarded by the desk
        self.placing = threading.Lock()  # guards what follows
        self.waiting: dict[str, Staged | Sequence[Change]] = {}  # by key: the changes without their names
        for each in staged:
            self.waiting[each.change.key] = each
        self.was_tried = False  # some names may have been changed already


_NONE = Group()  # of a submission that has not joined one yet


def submissions(staged: Sequence[Staged], numbers: Iterator[int], *, together: bool) -> list[Submission]:
    """One for a transaction, which is one record; as many as its size needs for a batch."""
    if together and len(staged) > 1:
        return [Submission(staged, seal_record([each.change for each in staged], next(numbers)), together=True)]
    found: list[Submission] = []
    members: list[Staged] = []
    lines: list[bytes] = []
    size = 0
    for each in staged:
        line = seal_record((each.change,), next(numbers))
        if members and size + len(line) > GROUP_BYTES:
            found.append(Submission(members, b"".join(lines)))
            members, lines, size = [], [], 0
        members.append(each)
        lines.append(line)
        size += len(line)
    if members:
        found.append(Submission(members, b"".join(lines)))
    return found


class GroupCommit:
    """The groups of one journal."""

    def __init__(self) -> None:
        self.turn = threading.Lock()  # held by the one thread that writes, settles or closes
        self._desk = threading.Lock()  # guards what follows
        self._open: Group | None = None

    def submit(self, submission: Submission, write: Callable[[Group], None]) -> Group:
        """Lead a group or join one; returns it when its outcome is known. `write` commits a group, in its turn."""
        while True:
            mine = Group()
            with mine.over:
                with self._desk:
                    group = self._open
                    if group is None:
                        group = self._open = mine
                    has_joined = group is mine or group.size + len(submission.lines) <= GROUP_BYTES
                    if has_joined:
                        group.members.append(submission)
                        group.size += len(submission.lines)
                        submission.group, submission.is_taken = group, False
                if group is mine:
                    self._lead(mine, write)
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
        return True

    def _lead(self, group: Group, write: Callable[[Group], None]) -> None:
        try:
            with self.turn:
                with self._desk:  # from now on nobody joins and nobody withdraws
                    self._open = None
                    for member in group.members:
                        member.is_taken = True
                try:
                    write(group)
                except OSError as error:
                    pass_on_interruption(error)
                    group.error = error
        finally:
            group.has_ended = True
            if self._open is group:  # interrupted before its turn
                self._close(group)

    def _close(self, group: Group) -> None:
        with self._desk:
            if self._open is group:
                self._open = None
