"""Scans a directory file by file. Findings are passed on and not kept, so memory does not grow with their number.

It stays on the file system of the directory, follows no link below it, and enters no folder except `.quarantine` (to
count) and kubelet's `device-plugins`. It takes no lock of an agent and writes nothing.
"""

from __future__ import annotations

import errno
import os
import re
import stat
import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from checkpointmanager.format import JOURNAL, LOCK, PREVIOUS, QUARANTINE, SUFFIX, TEMP, describe_error

from ..registry import DEVICE_PLUGINS, KNOWN_NAMES, KUBELET_NAMES, kind_at
from ..screens import phrases
from . import disk
from .agent import AgentUser, Held, LockState, agent_user, lock_of, refusals_of
from .examine import PAUSE_SECONDS, Among, Circumstances, examine, examine_path, key_of, stands_in_a_place, unreadable
from .finding import Finding, State
from .journal import Waiting, waiting_in
from .problem import Problem, tolerated

REPLACE_SECONDS = 0.2  # wait this long for a live agent that is replacing a file
IN_FLIGHT_SECONDS = 60.0  # a write may keep its temp file this long

_KUBELET_TEMP = re.compile(r"\.\d+")  # names of Go's CreateTemp(dir, ".")


class Scan:
    """One look at a directory or a file: its findings and, after the last of them, what else is there."""

    def __init__(self, path: str, *, content: bool = False, kubelet_version: str | None = None) -> None:
        self.path = path
        self.is_directory = os.path.isdir(path) and not stands_in_a_place(path)
        self.of_kubelet = False
        self.lock = LockState(Held.ABSENT)
        self.journal: Waiting | None = None  # left by an owner that has died
        self.temps: list[str] = []
        self.previous = 0
        self.torn: list[Finding] = []  # previous generations that are not whole
        self.orphans: list[Finding] = []  # previous generations without a current one
        self.quarantined = 0
        self.foreign = 0
        self.notes: list[str] = []  # sentences: what was left out, and why
        self.user: AgentUser | None = None  # the owner of a directory of checkpoints
        self.refusals: list[Problem] = []  # why that user's agent will not open it
        self._circumstances = Circumstances(content=content, kubelet_version=kubelet_version)

    def findings(self) -> Iterator[Finding]:
        """Every checkpoint and kubelet file, in the order of names. Raises OSError if the path cannot be read."""
        if not self.is_directory:
            os.lstat(self.path)
            folder = os.path.dirname(self.path) or "."
            if os.path.lexists(os.path.join(folder, LOCK)):  # no agent opens a copy elsewhere
                self.user = agent_user(folder)
            wanted = self._circumstances
            yield examine_path(self.path, content=wanted.content, kubelet_version=wanted.kubelet_version)
            return
        descriptor = disk.open_folder(self.path)
        try:
            yield from self._in_folder(descriptor)
            if self.of_kubelet:
                yield from self._device_plugins(descriptor)
        finally:
            os.close(descriptor)

    def _in_folder(self, folder: int) -> Iterator[Finding]:
        names = _sorted_out(folder)
        self.journal = waiting_in(self.path) if names.journal else None
        if self.journal:
            names.checkpoints = sorted({*names.checkpoints, *(name + SUFFIX for name in self.journal.names)})
            names.previous = sorted({*names.previous, *(PREVIOUS + name for name in self.journal.names)})
        self.of_kubelet = not names.ours and self._is_kubelets(names)
        self.lock = lock_of(self.path)
        self.user = agent_user(self.path)
        self.foreign = names.foreign
        mounted = disk.mounted_in(folder)
        self._circumstances = replace(
            self._circumstances, among=self._among(names), journal=self.journal, mounted=mounted
        )
        self._count_quarantined(folder)
        ours = names.ours
        for found in self._checkpoints(folder, names):
            ours = ours or found.header is not None
            yield found
        if ours:
            refusals = refusals_of(self.path, self.user)
            self.refusals += map(tolerated, refusals) if self.lock.held is Held.HELD else refusals
        self._look_at_previous(folder, names)
        self.temps = [name for name in names.temps if self._is_left_over(name, folder)]

    def _is_kubelets(self, names: _Names) -> bool:
        well_known = phrases.base_name(self.path) in ("kubelet", DEVICE_PLUGINS)
        return well_known or not set(KUBELET_NAMES).isdisjoint(names.checkpoints)

    def _among(self, names: _Names) -> Among:
        if self.of_kubelet or any(map(kind_at, map(self._place, KNOWN_NAMES.intersection(names.checkpoints)))):
            return Among.KUBELET
        return Among.CHECKPOINTS if names.ours else Among.ANYTHING

    def _checkpoints(self, folder: int, names: _Names) -> Iterator[Finding]:
        foreign: list[str] = []
        ours = False
        for name in names.checkpoints:
            found = examine(self._place(name), folder, self._circumstances)
            if found is None:
                continue
            if found.state is State.FOREIGN:
                foreign.append(found.path)
                continue
            ours = ours or found.kubelet is None
            yield found
        if self._circumstances.among is Among.ANYTHING and ours:
            # There are checkpoints after all, so the documents beside them should be checkpoints, too.
            strict = replace(self._circumstances, among=Among.CHECKPOINTS)
            yield from (found for path in foreign if (found := examine(path, folder, strict)))
        else:
            self.foreign += len(foreign)

    def _device_plugins(self, folder: int) -> Iterator[Finding]:
        """Kubelet keeps the file of its device manager one folder further down."""
        below = self._place(DEVICE_PLUGINS)
        try:
            inside = self._open_below(DEVICE_PLUGINS, folder)
        except FileNotFoundError:
            return
        except OSError as error:
            if error.errno == errno.EXDEV:
                self.notes.append(
                    f"{phrases.shown(below)} is a separate mount and was not checked; give its path to check it."
                )
            elif error.errno in (errno.ELOOP, errno.ENOTDIR):
                self.notes.append(
                    f"{phrases.shown(below)} is a link or a file instead of a folder, and was not checked."
                )
            else:
                yield unreadable(below, error)
            return
        try:
            circumstances = replace(self._circumstances, mounted=disk.mounted_in(inside))
            for name in KUBELET_NAMES:
                if found := examine(os.path.join(below, name), inside, circumstances):
                    yield found
        finally:
            os.close(inside)

    def _look_at_previous(self, folder: int, names: _Names) -> None:
        for name in names.previous:
            found = examine(self._place(name), folder, self._circumstances)
            if found is None:
                continue
            self.previous += 1
            if found.state not in (State.GOOD, State.TOO_NEW):
                self.torn.append(found)
            if not self._has_current(key_of(name)) and _is_orphan(name, folder):
                self.orphans.append(found)
        if self.torn and self.lock.may_be_held:
            time.sleep(REPLACE_SECONDS)
            again = [examine(one.path, folder, self._circumstances) for one in self.torn]
            self.torn = [one for one in again if one and one.state not in (State.GOOD, State.TOO_NEW)]

    def _has_current(self, key: str) -> bool:
        """True if the journal holds the key, or if another file system, which is not touched, has its place."""
        of_journal = self.journal is not None and key in self.journal.names
        return of_journal or key + SUFFIX in self._circumstances.mounted

    def _is_left_over(self, name: str, folder: int) -> bool:
        """True for the temp file of a dead writer, not for one that a live writer is filling."""
        try:
            status = os.stat(name, dir_fd=folder, follow_symlinks=False)
        except OSError:
            return False
        if not stat.S_ISREG(status.st_mode):
            return False
        return not self.lock.may_be_held or time.time() - status.st_mtime > IN_FLIGHT_SECONDS

    def _count_quarantined(self, folder: int) -> None:
        try:
            inside = self._open_below(QUARANTINE, folder)
        except FileNotFoundError:
            return
        except OSError as error:
            shown = phrases.shown(self._place(QUARANTINE))
            why = "it is a separate mount" if error.errno == errno.EXDEV else describe_error(error)
            self.notes.append(f"{shown} could not be counted: {why}.")
            return
        try:
            with os.scandir(inside) as entries:
                self.quarantined = sum(1 for entry in entries if entry.is_file(follow_symlinks=False))
        finally:
            os.close(inside)

    def _open_below(self, name: str, folder: int) -> int:
        if name in self._circumstances.mounted:
            raise disk.other_file_system()
        return disk.open_folder(name, folder)

    def _place(self, name: str) -> str:
        return os.path.join(self.path, name)


@dataclass(slots=True)
class _Names:
    """A directory's entries by purpose; other folders are ignored."""

    checkpoints: list[str] = field(default_factory=list)
    previous: list[str] = field(default_factory=list)
    temps: list[str] = field(default_factory=list)
    foreign: int = 0
    ours: bool = False  # there is something that only this library makes
    journal: bool = False


def _sorted_out(folder: int) -> _Names:
    names = _Names()
    with os.scandir(folder) as entries:
        for entry in entries:
            _sort_out(entry, names)
    names.checkpoints = sorted(set(names.checkpoints))  # a name that is replaced during the listing may appear twice
    names.previous.sort()
    names.temps.sort()
    return names


def _sort_out(entry: os.DirEntry[str], names: _Names) -> None:
    name = entry.name
    if name.startswith("."):
        names.ours = names.ours or name in (LOCK, QUARANTINE) or name.startswith((PREVIOUS, TEMP))
        if name == JOURNAL:
            names.journal = True
        elif name.startswith(PREVIOUS):
            names.previous.append(name)
        elif name.startswith(TEMP) or _KUBELET_TEMP.fullmatch(name):
            names.temps.append(name)
    elif (name.endswith(SUFFIX) and key_of(name)) or name in KUBELET_NAMES:
        names.checkpoints.append(name)
    elif not entry.is_dir(follow_symlinks=False):
        names.foreign += 1


def _is_orphan(name: str, folder: int) -> bool:
    """True if a previous generation stays without a current one: an agent removes the two one after the other."""
    current = name.removeprefix(PREVIOUS) + SUFFIX
    if _exists(current, folder):
        return False
    time.sleep(PAUSE_SECONDS)
    return _exists(name, folder) and not _exists(current, folder)


def _exists(name: str, folder: int) -> bool:
    try:
        os.stat(name, dir_fd=folder, follow_symlinks=False)
    except OSError as error:
        return error.errno != errno.ENOENT
    return True
