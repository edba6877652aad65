"""What can be done about a file, as exact commands, and what each choice costs."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import suppress
from typing import NamedTuple

from checkpointmanager import Reason
from checkpointmanager._format.reason import reason_of
from checkpointmanager._format.repair import Repair

from . import disk, words
from .agentuser import agent_user
from .consequences import Consequence, consequence_of
from .examine import Among, Circumstances, examine
from .finding import Finding, State
from .kubelet import DRA
from .lockstate import Held, LockState, lock_state
from .opening import refusal_of_file
from .remains import UNRECOGNISED
from .targets import Target


class Remedy(NamedTuple):
    """A sentence, and the commands that do what it says."""

    what: str
    commands: tuple[str, ...] = ()
    is_preparation: bool = False  # comes before the others, which are alternatives


# Without its file, kubelet does not know which claims drivers hold devices for.
_ORPHANS = Remedy(
    "Afterwards free the devices that drivers still hold: kubelet never unprepares claims that it has forgotten, so "
    "their devices stay held as orphans. List the claims that a driver holds, and release each one whose pod is gone.",
    ("dra-agent claims", "dra-agent release UID"),
)


def for_checkpoint(target: Target, found: Finding, cure: Repair | None, other_path: str = "") -> list[Remedy]:
    """For a damaged checkpoint, the least costly first. `other_path` is the path of the key that its header names."""
    if not target.key:
        return [Remedy("Copy it to <key>.json first; repair works only on files with such a name.")]
    return [*_preparations(target), *_choices(target, found, cure, other_path)]


def _preparations(target: Target) -> Iterator[Remedy]:
    lock = lock_of(target.directory)
    if lock.held in (Held.HELD, Held.UNKNOWN):
        yield Remedy(f"Stop the agent first; the lock is {lock}.", is_preparation=True)


def _choices(target: Target, found: Finding, cure: Repair | None, other_path: str) -> Iterator[Remedy]:
    path = words.quoted(target.path)
    if cure:
        yield Remedy("Repair it exactly; nothing is lost.", (f"checkpoint-verify repair {path}",))
        return
    if found.reason == UNRECOGNISED:
        yield Remedy("Move it out of the directory; it is not a checkpoint.", (f"mv -n {path} /root/",))
        if not os.path.lexists(target.previous):
            return
    if found.reason == Reason.WRONG_KEY and other_path and not os.path.lexists(other_path):
        rename = f"mv -n {path} {words.quoted(other_path)}"
        yield Remedy("Rename the file back, if it was renamed by mistake.", (rename,))
    previous = previous_of(target)
    if previous and previous.header:
        header = previous.header
        what = (
            f"Go back to generation {header.generation}, written {header.written:%Y-%m-%d %H:%M:%S} UTC; "
            "everything written after it is lost."
        )
        commands = (f"checkpoint-verify show --previous {path}", f"checkpoint-verify repair --rollback {path}")
        yield Remedy(what, commands)
        return
    why = f"the previous generation is {previous.reason}" if previous else "there is no previous generation"
    restore: tuple[str, ...] = (f"cp -a BACKUP {path}",)
    if found.reason == Reason.NOT_A_FILE:
        restore = (f"mv -n {path} /root/", *restore)
    yield Remedy(f"Restore the file from a backup: it cannot be repaired exactly, and {why}.", restore)
    what = "Discard it: its bytes go to quarantine, and the agent starts this key anew."
    yield Remedy(what, (f"checkpoint-verify repair --discard {path}",))


def for_kubelet(found: Finding) -> list[Remedy]:
    """For a file that kubelet or a driver refuses, the mildest first. Its checksum cannot prove a repair."""
    assert found.kubelet
    kind, consequence = found.kubelet.kind, consequence_of(found.kubelet.kind)
    remedies = []
    if kind == DRA and found.kubelet.data is not None:
        what = "Write down the claims that it names; the text can still be read, but not trusted."
        remedies.append(Remedy(what, (f"checkpoint-verify show {words.quoted(found.path)}",)))
    if not consequence.stops_kubelet and consequence.of_kubelet:
        remedies.append(Remedy(f"Kubelet starts without any action. {consequence.now}."))
    loading = [version for version, answer in found.kubelet.loads_in.items() if answer]
    if loading:
        remedies.append(Remedy(f"Go back to a kubelet version that loads it: {', '.join(loading)}."))
    remedies.append(_move_away(found.path, consequence))
    if kind == DRA:
        remedies.append(_ORPHANS)
    return remedies


def for_unreadable(target: Target, found: Finding) -> list[Remedy]:
    """For a file that could not be read."""
    path, directory = words.quoted(target.path), words.quoted(target.directory)
    if found.errno == errno.ENOENT:
        return [Remedy("Check the path: there is no such file.", (f"checkpoint-verify list {directory}",))]
    if found.errno != errno.EACCES:
        commands = (f"ls -ld {path}", "dmesg --level=err,warn | tail -50")
        return [Remedy("Look at the file, and look for disk errors in the kernel log.", commands)]
    remedies = [Remedy("Run this as root, or as the agent's user.")]
    with suppress(OSError):
        refusal = refusal_of_file(target.path, os.lstat(target.path), agent_user(target.directory))
        if refusal:
            what = f"Let the agent read it: {refusal.detail}."
            remedies.append(Remedy(what, (refusal.next,)))
    return remedies


def for_unverified_driver(found: Finding) -> list[Remedy]:
    """For a file of NVIDIA's driver that may be whole."""
    return [
        Remedy("Do nothing if the driver is running: then it has loaded the file."),
        Remedy("Go back to the driver version that wrote it, if the driver was upgraded or downgraded recently."),
        _move_away(found.path, consequence_of(found.kind)),
    ]


def _move_away(path: str, consequence: Consequence) -> Remedy:
    move = f"mv -n {words.quoted(path)} {words.quoted('/root/' + words.base_name(path) + '.damaged')}"
    if not consequence.of_kubelet:
        restart = "kubectl delete pod -n NAMESPACE POD-OF-THE-DRIVER"
        what = f"Drain the node, move the file away and restart the driver; then {consequence.lost}."
        return Remedy(what, ("kubectl drain NODE --ignore-daemonsets", move, restart, "kubectl uncordon NODE"))
    commands = ("systemctl stop kubelet", move, "systemctl start kubelet")
    if not consequence.stops_kubelet:
        return Remedy(f"Move the file away; then {consequence.lost}.", commands)
    drained = ("kubectl drain NODE --ignore-daemonsets", *commands, "kubectl uncordon NODE")
    return Remedy(f"Drain the node and move the file away; then {consequence.lost}.", drained)


def previous_of(target: Target) -> Finding | None:
    """The finding for the previous generation; None if there is none."""
    folder, name = os.path.split(target.previous)
    try:
        descriptor = disk.open_folder(folder or ".")
    except OSError as error:
        return Finding(target.previous, State.UNREADABLE, reason="unreadable", detail=reason_of(error))
    try:
        return examine(name, descriptor, target.previous, Circumstances(among=Among.CHECKPOINTS))
    finally:
        os.close(descriptor)


def lock_of(directory: str) -> LockState:
    try:
        descriptor = disk.open_folder(directory)
    except OSError:
        return LockState(Held.ABSENT)
    try:
        return lock_state(descriptor)
    finally:
        os.close(descriptor)
