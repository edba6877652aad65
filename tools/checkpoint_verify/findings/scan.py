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
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

from checkpointmanager.format import JOURNAL, LOCK, PREVIOUS, QUARANTINE, SUFFIX, TEMP, reason_of

from ..registry import KUBELET_NAMES, kind_at
from ..screens import phrases
from . import disk
from .agent import AgentUser, Held, LockState, agent_user, lock_state, refusals_of
from .disk import mounted_in
from .examine import (
    PAUSE_SECONDS,
    Among,
    Circumstances,
    examine,
    examine_path,
    key_of,
    not_a_file,
    stands_in_a_place,
    unreadable,
)
from .finding import Finding, State
from .journal import Waiting, waiting_in
from .problem import Problem, tolerated

DEVICE_PLUGINS = "device-plugins"
REPLACE_SECONDS = 0.2  # wait this long for a live agent that is replacing a file
IN_FLIGHT_SECONDS = 60.0  # a write may keep its temp file this long

_KUBELET_TEMP = re.compile(r"\.\d+")  # names of Go's CreateTemp(dir, ".")


@dataclass(slots=True)
class Surroundings:
    """What a directory holds besides its checkpoints."""

    path: str
    of_kubelet: bool = False
    lock: LockState = field(default_factory=lambda: LockState(Held.ABSENT))
    journal: Waiting | None = None  # left by an owner that has died
    temps: list[str] = field(default_factory=list)
    torn: list[Finding] = field(default_factory=list)  # previous generations that are not whole
    previous: int = 0
    orphans: list[Finding] = field(default_factory=list)  # previous generations without a current one
    quarantined: int = 0
    foreign: int = 0
    notes: list[str] = field(default_factory=list)  # sentences: what was left out, and why
    user: AgentUser | None = None  # the owner of a directory of checkpoints
    refusals: list[Problem] = field(default_factory=list)  # why that user's agent will not open it


@dataclass(slots=True)
class _Names:
    """A directory's entries by purpose; other folders are ignored.

    Mount points are not touched, not even by stat: the server of a dead mount never answers.
    """

    mounted: dict[str, str]
    checkpoints: list[str] = field(default_factory=list)
    previous: list[str] = field(default_factory=list)
    temps: list[str] = field(default_factory=list)
    irregular: set[str] = field(default_factory=set)  # links, folders, FIFOs and devices with a checkpoint's name
    foreign: int = 0
    ours: bool = False  # there is something that only this library makes
    journal: bool = False


def findings_at(
    path: str,
    around: Surroundings,
    circumstances: Circumstances,
    expect: Callable[[int], object] = lambda _: None,
) -> Iterator[Finding]:
    """The findings of a directory or a file. Raises OSError if the path does not exist or cannot be read."""
    os.lstat(path)
    if os.path.isdir(path) and not stands_in_a_place(path):
        yield from scan(path, around, circumstances, expect)
        return
    folder = os.path.dirname(path) or "."
    if os.path.lexists(os.path.join(folder, LOCK)):  # no agent opens a copy elsewhere
        around.user = agent_user(folder)
    yield examine_path(path, replace(circumstances, named=True))


def scan(
    path: str,
    around: Surroundings,
    circumstances: Circumstances,
    expect: Callable[[int], object] = lambda _: None,
) -> Iterator[Finding]:
    """Every checkpoint and kubelet file of a directory, in the order of names; also fills `around`.

    Calls `expect` with the number of files before it reads them. Raises OSError if the directory cannot be read.
    """
    folder = disk.open_folder(path)
    try:
        yield from _scan(path, folder, around, circumstances, expect)
        if around.of_kubelet:
            yield from _device_plugins(path, folder, around, circumstances, expect)
    finally:
        os.close(folder)


def _scan(
    path: str,
    folder: int,
    around: Surroundings,
    circumstances: Circumstances,
    expect: Callable[[int], object],
) -> Iterator[Finding]:
    mounted = mounted_in(folder)
    names = _sorted_out(folder, mounted)
    around.journal = waiting_in(path) if names.journal else None
    if around.journal:
        names.checkpoints = sorted({*names.checkpoints, *(name + SUFFIX for name in around.journal.names)})
        names.previous = sorted({*names.previous, *(PREVIOUS + name for name in around.journal.names)})
    around.of_kubelet = not names.ours and _is_kubelets(path, names)
    around.lock = lock_state(folder)
    around.user = agent_user(folder)
    around.foreign += names.foreign
    around.quarantined += _count_quarantined(path, folder, around, mounted)
    expect(len(names.checkpoints))
    among, device = _among(path, names, around), os.fstat(folder).st_dev
    circumstances = replace(circumstances, among=among, device=device, journal=around.journal)
    ours = names.ours
    for found in _checkpoints(path, folder, names, around, circumstances):
        ours = ours or found.header is not None
        yield found
    if ours:
        refusals = refusals_of(path, folder, around.user)
        around.refusals += map(tolerated, refusals) if around.lock.held is Held.HELD else refusals
    _look_at_previous(path, folder, names, around, circumstances)
    around.temps += [name for name in names.temps if _is_left_over(name, folder, around.lock)]


def _among(path: str, names: _Names, around: Surroundings) -> Among:
    if around.of_kubelet or any(
        kind_at(os.path.join(path, name)) for name in names.checkpoints if name.endswith(SUFFIX)
    ):
        return Among.KUBELET
    return Among.CHECKPOINTS if names.ours else Among.ANYTHING


def _checkpoints(
    path: str, folder: int, names: _Names, around: Surroundings, circumstances: Circumstances
) -> Iterator[Finding]:
    foreign: list[str] = []
    ours = False
    for name in names.checkpoints:
        place = os.path.join(path, name)
        if name in names.mounted:
            what = f"a separate mount ({names.mounted[name]}), not checked; give its path to check it"
            yield unreadable(place, OSError(errno.EXDEV, what))
        elif found := (
            (name in names.irregular and _irregular(name, folder, place, circumstances))
            or examine(name, folder, place, circumstances)
        ):
            if found.state is State.FOREIGN:
                foreign.append(name)
                continue
            ours = ours or found.kubelet is None
            yield found
    if circumstances.among is Among.ANYTHING and ours:
        # There are checkpoints after all, so the documents beside them should be checkpoints, too.
        strict = replace(circumstances, among=Among.CHECKPOINTS)
        yield from (found for name in foreign if (found := examine(name, folder, os.path.join(path, name), strict)))
    else:
        around.foreign += len(foreign)


def _irregular(name: str, folder: int, path: str, circumstances: Circumstances) -> Finding | None:
    """A finding for anything but a regular file, made without opening it: a device may react to that."""
    try:
        mode = os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode
    except OSError:
        return None
    if stat.S_ISREG(mode):
        return None
    if name in KUBELET_NAMES and stat.S_ISLNK(mode):
        return unreadable(
            path, OSError(errno.ELOOP, "a symbolic link, which is not followed; give the path of its target")
        )
    if circumstances.among is not Among.CHECKPOINTS and name not in KUBELET_NAMES:
        return Finding(path, State.FOREIGN)
    return not_a_file(path, name, disk.what_is(mode))


def _sorted_out(folder: int, mounted: dict[str, str]) -> _Names:
    names = _Names(mounted)
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
    elif name in KUBELET_NAMES or (name.endswith(SUFFIX) and key_of(name)):
        names.checkpoints.append(name)
        if name not in names.mounted and not entry.is_file(follow_symlinks=False):
            names.irregular.add(name)
    elif name not in names.mounted and not entry.is_dir(follow_symlinks=False):
        names.foreign += 1


def _is_kubelets(path: str, names: _Names) -> bool:
    well_known = phrases.base_name(path) in ("kubelet", DEVICE_PLUGINS)
    return well_known or any(name in KUBELET_NAMES for name in names.checkpoints)


def _device_plugins(
    path: str, folder: int, around: Surroundings, circumstances: Circumstances, expect: Callable[[int], object]
) -> Iterator[Finding]:
    """Kubelet keeps the file of its device manager one folder further down."""
    below = os.path.join(path, DEVICE_PLUGINS)
    if DEVICE_PLUGINS in mounted_in(folder):
        around.notes.append(
            f"{phrases.shown(below)} is a separate mount and was not checked; give its path to check it."
        )
        return
    try:
        inside = disk.open_folder(DEVICE_PLUGINS, folder)
    except FileNotFoundError:
        return
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENOTDIR):
            around.notes.append(f"{phrases.shown(below)} is a link or a file instead of a folder, and was not checked.")
        else:
            yield unreadable(below, error)
        return
    try:
        lock, of_kubelet = around.lock, around.of_kubelet
        yield from _scan(below, inside, around, circumstances, expect)
        around.lock, around.of_kubelet = lock, of_kubelet
    finally:
        os.close(inside)


def _look_at_previous(
    path: str, folder: int, names: _Names, around: Surroundings, circumstances: Circumstances
) -> None:
    for name in names.previous:
        found = examine(name, folder, os.path.join(path, name), circumstances)
        if found is None:
            continue
        around.previous += 1
        if found.state not in (State.GOOD, State.TOO_NEW):
            around.torn.append(found)
        of_journal = around.journal is not None and key_of(name) in around.journal.names
        if not of_journal and _is_orphan(name, folder):
            around.orphans.append(found)
    if around.torn and around.lock.held in (Held.HELD, Held.UNKNOWN):
        time.sleep(REPLACE_SECONDS)
        again = [examine(phrases.base_name(one.path), folder, one.path, circumstances) for one in around.torn]
        around.torn = [one for one in again if one and one.state not in (State.GOOD, State.TOO_NEW)]


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


def _is_left_over(name: str, folder: int, lock: LockState) -> bool:
    """True for the temp file of a dead writer, not for one that a live writer is filling."""
    try:
        status = os.stat(name, dir_fd=folder, follow_symlinks=False)
    except OSError:
        return False
    if not stat.S_ISREG(status.st_mode):
        return False
    maybe_alive = lock.held in (Held.HELD, Held.UNKNOWN)
    return not maybe_alive or time.time() - status.st_mtime > IN_FLIGHT_SECONDS


def _count_quarantined(path: str, folder: int, around: Surroundings, mounted: dict[str, str]) -> int:
    shown = phrases.shown(os.path.join(path, QUARANTINE))
    if QUARANTINE in mounted:
        around.notes.append(f"{shown} is a separate mount and was not checked.")
        return 0
    try:
        inside = disk.open_folder(QUARANTINE, folder)
    except FileNotFoundError:
        return 0
    except OSError as error:
        around.notes.append(f"{shown} could not be counted: {reason_of(error)}.")
        return 0
    try:
        with os.scandir(inside) as entries:
            return sum(1 for entry in entries if entry.is_file(follow_symlinks=False))
    finally:
        os.close(inside)
