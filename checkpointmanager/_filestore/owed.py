"""Changes that are committed, or about to be, and do not have their names yet.

Usually for a moment: each thread places its own changes after the commit. What an interrupt or a failure has left is
placed by the next call on the key, by the next settle, or by the next owner. It is durable from the commit on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress

from .._interruption import pass_on_interruption
from .._store import Replaces
from ..format import Change, Damaged, current_name, describe_error, encode_key, previous_name, truth
from .directory import Directory
from .groupcommit import Group, Submission
from .names import Staged, discard_temps, put_in_place, put_names_right, take_away
from .reading import read_changes, read_file

_EARLIER = Group()  # of what was committed by other means
_EARLIER.committed = True


class Owed:
    """By key, what is submitted and not known to have its name.

    Entries of a key change only while it is held, or under `placing` of its submission, or in the turn of the journal.
    """

    def __init__(self, directory: Directory, max_bytes: int, report: Callable[[str], object]) -> None:
        self._directory = directory
        self._max_bytes = max_bytes
        self._report = report
        self.by_key: dict[str, Submission] = {}
        self.inherited: dict[str, Change] = {}  # by key: what counts of an earlier journal; guarded by the turn

    def add(self, submission: Submission) -> None:
        for key in submission.waiting:
            self.by_key[key] = submission

    def inherit(self, key: str, changes: Sequence[Change]) -> None:
        """Place what a dead owner's journal says about a key; owe it if its files cannot be read or replaced."""
        try:
            self.inherited[key] = put_names_right(self._directory, key, changes, self._max_bytes)
        except OSError as error:
            pass_on_interruption(error)
            self.owe(key, changes)
            self._report_unplaced(key, error)

    def owe(self, key: str, changes: Sequence[Change]) -> None:
        """Committed earlier, perhaps by another process, and not to be placed now."""
        submission = Submission((), b"")
        submission.waiting[key] = changes
        submission.group = _EARLIER
        self.by_key[key] = submission

    def committed(self) -> list[Submission]:
        return [each for each in {*list(self.by_key.values())} if each.group.committed]  # a copy: others add to it

    def keys(self) -> list[str]:
        """Those of committed changes."""
        return [change.key for change in changes_of(self.committed())]

    def change(self, key: str) -> Change | None:
        """The committed change of a key. Raises Damaged if that depends on a file that cannot be read."""
        submission = self.by_key.get(key)
        waiting = submission.waiting.get(key) if submission and submission.group.committed else None
        if waiting is None or isinstance(waiting, Staged):
            return waiting.change if waiting else None
        return truth(waiting, *read_changes(self._directory, key, self._max_bytes))[0] or Change(key, 0, None)

    def place(self, submission: Submission) -> None:
        """Give committed changes their names. What fails stays owed."""
        with submission.placing:
            again, submission.was_tried = submission.was_tried, True
            for key, waiting in list(submission.waiting.items()):
                try:
                    self._place(key, waiting, again=again)
                except OSError as error:
                    pass_on_interruption(error)
                    self._report_unplaced(key, error)
                    continue
                if self.by_key.get(key) is submission:
                    del self.by_key[key]  # first: an interrupt between the two must not leave an entry for nothing
                del submission.waiting[key]

    def forget(self, submission: Submission) -> None:
        """Nothing is owed any more."""
        with submission.placing:
            submission.waiting.clear()
            for each in submission.staged:
                if self.by_key.get(each.change.key) is submission:
                    del self.by_key[each.change.key]

    def discard(self, submission: Submission) -> None:
        """It was not committed, and never will be."""
        self.forget(submission)
        discard_temps(self._directory, submission.staged)

    def _place(self, key: str, waiting: Staged | Sequence[Change], *, again: bool) -> None:
        if not isinstance(waiting, Staged):
            self.inherited[key] = put_names_right(self._directory, key, waiting, self._max_bytes)
        elif waiting.change.blob is None:
            take_away(self._directory, key)
        elif again:
            self._place_again(key, waiting, waiting.change.blob)
        else:
            put_in_place(self._directory, key, waiting.temp, waiting.replaces)

    def _place_again(self, key: str, staged: Staged, blob: bytes) -> None:
        """Go on where an interrupted or failed attempt stopped, as the names show."""
        temp, replaces = staged.temp, staged.replaces
        if not self._directory.exists(temp):
            with suppress(FileNotFoundError, Damaged):
                if read_file(self._directory, current_name(key), len(blob)) == blob:
                    return
            temp = self._directory.write_temp(blob)
        if replaces is Replaces.WHOLE and self._directory.is_same(current_name(key), previous_name(key)):
            replaces = Replaces.DAMAGED  # the previous generation is in place already
        put_in_place(self._directory, key, temp, replaces)

    def _report_unplaced(self, key: str, error: OSError) -> None:
        self._report(
            f"{encode_key(key)}: {describe_error(error)}: its change is safe in the journal, but not in place yet"
        )


def changes_of(submissions: Iterable[Submission]) -> list[Change]:
    """Every change that has not got its name yet."""
    found: list[Change] = []
    for submission in submissions:
        for waiting in list(submission.waiting.values()):
            found.extend((waiting.change,) if isinstance(waiting, Staged) else waiting)
    return found
