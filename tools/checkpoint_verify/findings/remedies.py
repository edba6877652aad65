"""What can be done about a file, as exact commands, and what each choice costs."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import suppress
from typing import NamedTuple

from checkpointmanager import Reason
from checkpointmanager.format import Repair

from ..registry import KubeletFile
from ..screens import phrases
from ..targets import Target
from .agent import agent_user, lock_of, refusal_of_file
from .damage import UNRECOGNISED
from .examine import examine_path
from .finding import Finding


class Remedy(NamedTuple):
    """A sentence, and the commands that do what it says."""

    what: str
    commands: tuple[str, ...] = ()
    is_preparation: bool = False  # comes before the others, which are alternatives


# Works on a node whose kubelet is down: it is drained when kubelet runs again, and nothing waits for ever.
_CORDON = "kubectl cordon NODE"
_DRAIN = ("kubectl drain NODE --ignore-daemonsets --delete-emptydir-data --timeout=10m", "kubectl uncordon NODE")
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
    if lock.may_be_held:
        yield Remedy(f"Stop the agent first; the lock is {lock}.", is_preparation=True)


def _choices(target: Target, found: Finding, cure: Repair | None, other_path: str) -> Iterator[Remedy]:
    if cure:
        yield Remedy("Repair it exactly; nothing is lost.", (phrases.command("repair", target.path),))
        return
    previous = examine_path(target.previous) if os.path.lexists(target.previous) else None
    if found.reason == Reason.NOT_A_FILE:
        yield Remedy("Move it away: only you know what it is.", (phrases.move_away(target.path),))
        source = phrases.quoted(target.previous) if previous and previous.header else "BACKUP"
        what = f"Then put {'the previous generation' if source != 'BACKUP' else 'a backup'} in its place."
        yield Remedy(what, (f"{phrases.command('restore', target.path)} {source}",))
        return
    if found.reason == UNRECOGNISED:
        yield Remedy("Move it out of the directory; it is not a checkpoint.", (phrases.move_away(target.path),))
        if not previous:
            return
    if found.reason == Reason.WRONG_KEY and other_path and not os.path.lexists(other_path):
        rename = f"mv -n {phrases.quoted(target.path)} {phrases.quoted(other_path)}"
        yield Remedy("Rename the file back, if it was renamed by mistake.", (rename,))
    if previous and previous.header:
        what = f"Go back to {phrases.generation(previous.header)}; everything written after it is lost."
        commands = ("show --previous", "repair --rollback")
        yield Remedy(what, tuple(phrases.command(command, target.path) for command in commands))
        return
    why = f"the previous generation is {previous.reason}" if previous else "there is no previous generation"
    restore = f"{phrases.command('restore', target.path)} BACKUP"
    yield Remedy(f"Restore the file from a backup: it cannot be repaired exactly, and {why}.", (restore,))
    what = "Discard it: its bytes go to quarantine, and the agent starts this key from scratch."
    yield Remedy(what, (phrases.command("repair --discard", target.path),))


def for_kubelet(path: str, file: KubeletFile) -> list[Remedy]:
    """For a file that kubelet or a driver refuses, the mildest first. Its checksum cannot prove a repair."""
    consequence = file.consequence
    remedies = []
    if consequence.leaves_orphans and file.data is not None:
        what = "Write down the claims that it names; the text can still be read, but not trusted."
        remedies.append(Remedy(what, (phrases.command("show", path),)))
    if not consequence.stops_kubelet and consequence.of_kubelet:
        remedies.append(Remedy(f"Kubelet starts without any action. {consequence.now}."))
    loading = [version for version, answer in file.loads_in.items() if answer]
    if loading:
        remedies.append(Remedy(f"Go back to a kubelet version that loads it: {', '.join(loading)}."))
    remedies.append(_without_file(path, file))
    if consequence.leaves_orphans:
        remedies.append(_ORPHANS)
    return remedies


def for_unreadable(target: Target, found: Finding) -> list[Remedy]:
    """For a file that could not be read."""
    path = phrases.quoted(target.path)
    if found.errno == errno.ENOENT:
        return [Remedy("Check the path: there is no such file.", (phrases.command("list", target.directory),))]
    if found.errno != errno.EACCES:
        commands = (f"ls -ld {path}", "dmesg --level=err,warn | tail -50")
        return [Remedy("Look at the file, and look for disk errors in the kernel log.", commands)]
    remedies = [Remedy("Run this as root, or as the agent's user.")]
    with suppress(OSError):
        refusal = refusal_of_file(target.path, target.key, os.lstat(target.path), agent_user(target.directory))
        if refusal:
            what = f"Let the agent read it: {refusal.detail}."
            remedies.append(Remedy(what, (refusal.next,)))
    return remedies


def for_unverified_driver(path: str, file: KubeletFile) -> list[Remedy]:
    """For a driver's file that may be whole."""
    return [
        Remedy("Do nothing if the driver is running: then it has loaded the file."),
        Remedy("Go back to the driver version that wrote it, if the driver was upgraded or downgraded recently."),
        _without_file(path, file),
    ]


def _without_file(path: str, file: KubeletFile) -> Remedy:
    """Start kubelet or the driver without the file."""
    move, lost = phrases.move_away(path), file.consequence.lost
    if not file.of_kubelet:
        restart = "kubectl delete pod -n NAMESPACE POD-OF-THE-DRIVER --wait=false"
        what = f"Move the file away, restart the driver and drain the node; then {lost}."
        return Remedy(what, (_CORDON, move, restart, *_DRAIN))
    commands = ("systemctl stop kubelet", move, "systemctl start kubelet")
    if not file.consequence.stops_kubelet:
        return Remedy(f"Move the file away; then {lost}.", commands)
    return Remedy(f"Move the file away and drain the node; then {lost}.", (_CORDON, *commands, *_DRAIN))
