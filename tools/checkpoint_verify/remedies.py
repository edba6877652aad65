"""What can be done about a file, as exact commands, and what each of them costs."""

from __future__ import annotations

import os
from typing import NamedTuple

from checkpointmanager import Reason
from checkpointmanager._format.reason import reason_of
from checkpointmanager._format.repair import Repair

from . import disk, words
from .examine import Among, Circumstances, examine
from .finding import Finding, State
from .lockstate import Held, LockState, lock_state
from .targets import Target


class Remedy(NamedTuple):
    """A sentence, and the commands that do it."""

    what: str
    commands: tuple[str, ...] = ()


_LOST_WITH = {
    "cpu_manager_state": "kubelet hands out CPUs anew; running pods keep theirs only until then",
    "memory_manager_state": "kubelet hands out NUMA memory anew; running pods are not counted until they restart",
    "kubelet_internal_checkpoint": "kubelet forgets which device belongs to which pod until the plugins register again",
    "dra_manager_state": "kubelet forgets which claims are prepared; their devices may be handed out twice",
    "allocated_pods_state": "kubelet forgets resizes in flight and starts from the pod specs",
    "actuated_pods_state": "kubelet forgets resizes in flight and starts from the pod specs",
    "pod_status_manager_state": "kubelet forgets resizes in flight and starts from the pod specs",
}


def for_checkpoint(target: Target, found: Finding, cure: Repair | None, other_path: str = "") -> list[Remedy]:
    """For a damaged checkpoint of ours, the least costly first. `other_path` is of the key that it says to be."""
    lock = lock_of(target.directory)
    remedies = []
    if lock.held in (Held.HELD, Held.UNKNOWN):
        remedies.append(Remedy(f"Stop the agent first; the lock is {lock}."))
    path = words.quoted(target.path)
    if not target.key:
        remedies.append(Remedy("The name is no key's, so repair cannot work on it: copy it back to <key>.json first."))
        return remedies
    if cure:
        remedies.append(Remedy("Repair it exactly; nothing is lost.", (f"checkpoint-verify repair {path}",)))
        return remedies
    if found.reason == Reason.WRONG_KEY and other_path and not os.path.lexists(other_path):
        rename = f"mv -n {path} {words.quoted(other_path)}"
        remedies.append(Remedy("Give the file its own name back, if it was renamed by mistake.", (rename,)))
    previous = previous_of(target)
    if previous and previous.header:
        header = previous.header
        what = (
            f"Go back to generation {header.generation}, written {header.written:%Y-%m-%d %H:%M:%S} UTC; "
            "what was written after it is lost."
        )
        commands = (f"checkpoint-verify show --previous {path}", f"checkpoint-verify repair --rollback {path}")
        remedies.append(Remedy(what, commands))
        return remedies
    why = f"the one there is {previous.reason}" if previous else "there is none"
    remedies.append(Remedy(f"No exact repair, and no previous generation to go back to ({why})."))
    remedies.append(Remedy("Restore the file from a backup, if there is one.", (f"cp -a BACKUP {path}",)))
    what = "Or give it up: its bytes are kept in quarantine, and the agent starts this key as new."
    remedies.append(Remedy(what, (f"checkpoint-verify repair --discard {path}",)))
    return remedies


def for_kubelet(found: Finding) -> list[Remedy]:
    """For a file that kubelet does not load. There is no repair: its checksum cannot prove one."""
    assert found.kubelet
    path, kubelet = words.quoted(found.path), found.kubelet
    loading = [version for version, answer in kubelet.loads_in.items() if answer]
    remedies = []
    if loading:
        remedies.append(Remedy(f"Kubelet {', '.join(loading)} would load it: go back to such a version."))
    lost = _LOST_WITH.get(kubelet.kind, "kubelet starts without it")
    remedies.append(
        Remedy(
            f"Or drain the node and move the file away; then {lost}.",
            (
                "kubectl drain NODE --ignore-daemonsets",
                "systemctl stop kubelet",
                f"mv {path} {words.quoted('/root/' + words.base_name(found.path) + '.damaged')}",
                "systemctl start kubelet",
                "kubectl uncordon NODE",
            ),
        )
    )
    return remedies


def previous_of(target: Target) -> Finding | None:
    """The generation before, judged; None if there is none."""
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
