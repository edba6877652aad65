"""Records a scenario once, then recreates every disk that a power loss may leave."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from ._powerloss import PowerLoss, State
from ._recorder import record
from ._recording import Operation
from ._scenario import Cases, fast_folder, folder_in
from ._standins import is_faked, standing_by

# No program relies on what is in these files, or on whether they are there.
IGNORED = (".lock",)


@dataclass(frozen=True)
class Crash:
    """A directory as a power loss may have left it. str(crash) says how it came about and what it holds."""

    _place: Path
    acknowledged: tuple[Any, ...]  # what had been promised before the power failed, in order
    state: State  # how the disk came about, for printing
    options: dict[str, Any]  # those of every_crash: a second power loss follows the same model

    @cached_property
    def directory(self) -> Path:
        """Written when it is first asked for, so a check of a few crashes among many costs only these few."""
        self._place.mkdir(mode=0o700)
        return self._restore(self._place)

    def again(self, recover: Callable[[Path], object], **options: Any) -> Crashes:
        """A second power loss, during what `recover` does with the directory."""
        crashes = Crashes(self._restore, recover, folder=str(self._place.parent), **{**self.options, **options})
        crashes.promised = self.acknowledged + crashes.promised
        return crashes

    def _restore(self, directory: Path) -> Path:
        self.state.image.write(str(directory))
        return directory

    def __str__(self) -> str:
        return f"{self.state}\nand this was acknowledged: {', '.join(map(repr, self.acknowledged)) or 'nothing'}"


class Crashes(Cases[Crash]):
    """What every_crash returns. Iterate over it, more than once if you like, or pass a function to `check`.

    `check(function)` calls it for each crash and returns self; an exception gets a description of the crash as a note.
    After a full iteration `states` is the number of different disks, and `left_out` the number of combinations that
    were skipped because there were too many.
    """

    def __init__(
        self,
        setup: Callable[[Path], Any],
        scenario: Callable[[Any], object],
        *,
        folder: str | None = None,
        ignore: Sequence[str] = IGNORED,
        in_order: bool = False,
    ) -> None:
        if is_faked():
            raise RuntimeError("every_crash needs real files; pause pyfakefs, or run this test without it")
        self._folder = folder or fast_folder()
        self._options: dict[str, Any] = {"ignore": ignore, "in_order": in_order}
        self.states = 0
        self.left_out = 0
        with standing_by(), folder_in(self._folder) as directory:
            self._recording, promised = record(setup, scenario, directory, directory)
        self.promised = promised  # what setup acknowledged

    @property
    def operations(self) -> tuple[Operation, ...]:
        """What the scenario did."""
        return self._recording.operations

    def __iter__(self) -> Iterator[Crash]:
        losses = PowerLoss(self._recording, **self._options)
        self.states = self.left_out = 0
        with standing_by(), folder_in(self._folder) as workspace:
            for state in losses:
                self.states += 1
                place = workspace / str(self.states)
                yield Crash(place, self.promised + state.acknowledged, state, self._options)
                shutil.rmtree(place, ignore_errors=True)
        self.left_out = losses.left_out


def every_crash(
    scenario: Callable[[Any], object],
    *,
    setup: Callable[[Path], Any] = lambda directory: directory,
    ignore: Sequence[str] = IGNORED,
    in_order: bool = False,
) -> Crashes:
    """Record what `scenario` does in an empty directory. Iterate over every disk that a power loss may leave.

    `setup` runs first; what it writes is durable, and what it returns is the argument of the scenario (closed at the
    end, if it has a `close`). `ignore` has the names, or patterns of names, of files that do not matter: disks that
    differ only in them are visited once. With `in_order` names become durable in the order in which they were changed,
    as on ext4 with a journal and on xfs; otherwise any of them may be missing.
    """
    return Crashes(setup, scenario, ignore=ignore, in_order=in_order)
