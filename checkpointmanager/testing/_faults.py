"""Runs a scenario repeatedly. In each run a different call fails, or the process dies at a different call."""

from __future__ import annotations

import errno
import gc
import itertools
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ._diskimage import scan
from ._injector import Death, Error, Failure, Injector, Interruption, ShortWrite
from ._recorder import record
from ._scenario import Cases, Collected, acknowledgements_to, close, fast_folder, folder_in
from ._standins import is_faked, standing_by
from ._watch import Call

# A disk that is full, broken, read-only or not accessible; a process with too many open files.
ERRORS = (errno.ENOSPC, errno.EIO, errno.EROFS, errno.EACCES, errno.EMFILE)


@dataclass(frozen=True, slots=True)
class Fault:
    """One call that went wrong in one run of the scenario, and what was left."""

    directory: Path  # a copy of what the run left; its lock is free
    call: Call
    failure: Failure  # how the call went wrong
    error: BaseException | None  # what the scenario raised; None if it raised nothing, or died
    acknowledged: tuple[Any, ...]  # what had been promised by then, in order

    def __str__(self) -> str:
        raised = f"{type(self.error).__name__}: {self.error}" if self.error else "nothing"
        return f"{self.failure} at: {self.call}\nraised: {raised}\nacknowledged: {self.acknowledged}"


class Faults(Cases[Fault]):
    """What every_fault returns. `runs` is the number of faults of the last full iteration.

    `check(function)` calls it for each fault and returns self; an exception gets a description of the fault as a note.
    """

    def __init__(
        self,
        setup: Callable[[Path], Any],
        scenario: Callable[[Any], object],
        failures: Sequence[Failure],
    ) -> None:
        self._setup = setup
        self._scenario = scenario
        self._failures = failures
        self.runs = 0

    def __iter__(self) -> Iterator[Fault]:
        self.runs = 0
        with standing_by():
            if not is_faked():
                self._check_that_all_is_seen()
            for failure in self._failures:
                with _only_new_objects_collected() if isinstance(failure, Death) else nullcontext():
                    yield from self._all_of(failure)

    def _all_of(self, failure: Failure) -> Iterator[Fault]:
        for at in itertools.count(1):
            with folder_in(fast_folder()) as left:
                fault = self._run(failure, at, left)
                if fault is None:
                    return
                self.runs += 1
                yield fault

    def _check_that_all_is_seen(self) -> None:
        """Raise UnseenChange if the scenario does something that cannot be made to fail."""
        with folder_in(fast_folder()) as folder:
            directory = folder / "agent"
            directory.mkdir(0o700)
            record(self._setup, self._scenario, directory, folder)

    def _run(self, failure: Failure, at: int, left: Path) -> Fault | None:
        """Run the scenario with one fault; None if it makes fewer calls."""
        collected = Collected()
        # The directory is inside the watched folder, so that a sync of the parent directory is seen too.
        with folder_in(fast_folder()) as folder, acknowledgements_to(collected):
            directory = folder / "agent"
            directory.mkdir(0o700)
            given = self._setup(directory)
            injector = Injector(str(folder), failure, at)
            error = self._attempt(
                injector, given, expected=BaseException if isinstance(failure, Interruption) else Exception
            )
            if injector.failed is None:
                close(given)
                return None
            if injector.dead:
                injector.redirect_descriptors()
            else:
                close(given)
            # After a death no object has been freed yet: `error` holds all frames, and no finalizer has run.
            scan(str(directory))[0].write(str(left))
        if injector.dead:
            with injector.silence():
                error = given = None
                injector.close_descriptors()
        raised = _without_frames(error)
        return Fault(left, injector.failed, failure, raised, tuple(collected.values))

    def _attempt(self, injector: Injector, given: Any, expected: type[BaseException]) -> BaseException | None:
        try:
            with injector.injecting():
                self._scenario(given)
        except BaseException as error:
            # After a death the type does not matter: code on the way may have wrapped the exception.
            if injector.dead or (injector.failed and isinstance(error, expected)):
                return error
            raise
        return None


def every_fault(
    scenario: Callable[[Any], object],
    *,
    setup: Callable[[Path], Any] = lambda directory: directory,
    errors: Sequence[int] = ERRORS,
    deaths: bool = True,
    interrupts: bool = False,
) -> Faults:
    """Iterate over every call of `scenario` that may fail, with each of `errors`, and over every place to die.

    With `interrupts`, also over every call before or after which a KeyboardInterrupt may come.

    Each time `setup` prepares a new directory, without faults, and returns the argument of the scenario. Then the
    scenario runs with one fault; what it raises is in the Fault. A first run without faults raises UnseenChange if the
    scenario does something that cannot be seen, and so cannot be made to fail.
    """
    failures: list[Failure] = [Error(number) for number in errors]
    if interrupts:
        failures += [Interruption(KeyboardInterrupt(), after) for after in (False, True)]
    return Faults(setup, scenario, [*failures, ShortWrite(), *([Death()] if deaths else [])])


def _without_frames(error: BaseException | None) -> BaseException | None:
    """Frames would keep the scenario's objects alive, and with them descriptors and locks."""
    link: BaseException | None = error
    while link is not None:
        link.__traceback__ = None
        link = link.__cause__ or link.__context__
    return error


@contextmanager
def _only_new_objects_collected() -> Iterator[None]:
    """A collection follows each death, and walking all objects of a large test suite took most of the time."""
    if gc.get_freeze_count():  # frozen already by another caller, which will undo it
        yield
        return
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()
