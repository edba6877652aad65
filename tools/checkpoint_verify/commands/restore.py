"""restore: put back one checkpoint from a file, or all of a backup; what they replace goes to quarantine."""

from __future__ import annotations

import argparse
import errno
import os
from typing import cast

from checkpointmanager import CheckpointNotFound, Put, Reason, Remove, Replaces, Store
from checkpointmanager.format import (
    LOCK,
    MAX_GENERATION,
    SUFFIX,
    Damaged,
    TooNew,
    generation_in,
    open_any,
    open_sealed,
    repair,
    seal,
)

from .. import bundle, targets
from ..etcd import SCHEME
from ..exitcodes import UsageError
from ..findings.examine import examine_path
from ..findings.finding import Finding, State
from ..findings.scan import Scan
from ..screens import phrases
from ..targets import Target
from .change import Change, add_consent
from .steps import Step, read_back

HELP = "put back a checkpoint from a file, or all of a backup (needs the lock)"
EXAMPLES = """\
  checkpoint-verify restore /var/lib/agent/claims/pod-7.json /backup/claims/pod-7.json
  checkpoint-verify restore -d /var/lib/agent/claims pod-7 /var/lib/agent/claims/.previous-pod-7
  checkpoint-verify restore -d /var/lib/agent/claims /backup/claims
  checkpoint-verify restore -d /var/lib/agent/claims claims.tar          from a bundle

A FILE may also be a previous generation or a copy in quarantine. A whole restore changes only what the backup has.
"""

_REPLACED = cast(Reason, "replaced")  # the word in a copy's name: what it holds need not be damaged


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "targets", nargs="+", metavar="KEY FILE|BACKUP", help="a key and a file; or a directory or bundle, with -d"
    )
    targets.add_directory(parser)
    add_consent(parser)


def run(arguments: argparse.Namespace) -> int:
    if len(arguments.targets) == 1:
        directory, chosen = _whole(arguments.targets[0], arguments.directory)
    elif len(arguments.targets) == 2:
        if bundle.is_redacted(os.path.dirname(arguments.targets[1])):
            raise UsageError("the bundle was made with --redact, so it has no data to restore")
        target = targets.one(arguments.targets[:1], arguments.directory)
        directory = target.directory
        chosen = [_step(target, examine_path(arguments.targets[1], content=True))]
    else:
        raise UsageError("give a KEY and a FILE, or one backup and with -d the directory that it goes to")
    refuse_what_is_not_ours(directory)
    blobs = {step.target.path: blob for step, blob in chosen}
    change = Change("restore", directory, [step for step, _ in chosen], arguments)
    return change.carry_out(change.on_store(lambda store, step: put_back(store, step, blobs[step.target.path])))


def refuse_what_is_not_ours(directory: str) -> None:
    """Nothing is put into the folder of another program, not even a lock file."""
    if directory.startswith(SCHEME) or os.path.lexists(os.path.join(directory, LOCK)) or not os.listdir(directory):
        return
    if not any(found.header for found in Scan(directory).findings()):
        raise UsageError(f"{phrases.shown(directory)} is not a directory of checkpoints")


def _whole(source: str, directory: str | None) -> tuple[str, list[tuple[Step, bytes]]]:
    if directory is None:
        raise UsageError("name the directory that the backup goes to, with -d")
    if bundle.is_redacted(source):
        raise UsageError("the bundle was made with --redact, so it has no data to restore")
    chosen = []
    for found in Scan(source, content=True).findings():
        if found.kubelet is None and found.key:
            target = Target(os.path.join(directory, found.key + SUFFIX), found.key)
            chosen.append(_step(target, found))
    if not chosen:
        raise UsageError(f"{phrases.shown(source)} has no checkpoints")
    kept = {step.target.key for step, _ in chosen}
    for found in Scan(directory).findings():
        if found.key not in kept:
            why = "not in the backup"
            chosen.append((Step(Target(found.path, found.key), found, action="stays", detail=why), b""))
    return directory, chosen


def _step(target: Target, source: Finding) -> tuple[Step, bytes]:
    """What to do with the content of a file, and the bytes; exactly repaired if they are damaged."""
    if not target.key:
        raise UsageError(f"{phrases.shown(target.path)} is not the file of a key")
    step = Step(target, examine_path(target.path), action="restored", detail=f"from {source.path}")
    blob = source.blob
    if source.state is State.DAMAGED and (cure := repair(blob)):
        blob, step.detail = cure.blob, f"from {source.path}, repaired exactly"
    if source.state is State.UNREADABLE or not blob:
        step.leave(f"{source.path}: {source.detail or 'too large to restore'}")
        return step, b""
    try:
        header, _ = open_sealed(blob, target.real_key)
    except (Damaged, TooNew) as why:
        step.leave(f"{source.path} cannot be put back: {why}")
        return step, b""
    if step.found.header and step.found.header.kind != header.kind:
        step.leave(f"{source.path} is of kind {header.kind}, not {step.found.header.kind}")
    elif step.found.state is State.GOOD and examine_path(target.path, content=True).blob == blob:
        step.decide("good", "it holds exactly this already")
    return step, blob


def put_back(store: Store, step: Step, blob: bytes) -> None:
    """Give the step's key these bytes, which are a whole checkpoint of it. Raises OSError or CheckpointError.

    They keep their kind, version, time and data. Their generation rises above every generation of the key that can
    still be seen, so that neither the journal nor a reader takes an older one for newer.
    """
    key = step.target.real_key
    with store.writing():
        store.check_owner([key])
        current, highest = _present(store, key)
        if current == blob:
            step.decide("good", "it holds exactly this already")
            return
        header, data = open_any(blob)
        stated = header
        if header.generation <= highest:
            header = header._replace(generation=highest + 1)
            blob = seal(header, data)
        if header.generation > MAX_GENERATION:
            raise OSError(errno.EOVERFLOW, f"there is no generation above {highest}")
        replaces = Replaces.ABSENT if current is None else _replaces(current)
        _keep(store, step, replaces)
        _commit(store, Put(key, blob, header.generation, replaces))
    step.detail = phrases.generation(stated)
    if header is not stated:
        step.detail += f", as generation {header.generation}"
    read_back(step)


def take_away(store: Store, step: Step) -> None:
    """Remove the step's key. Raises OSError or CheckpointError."""
    key = step.target.real_key
    with store.writing():
        store.check_owner([key])
        current, highest = _present(store, key)
        if current is None:
            step.decide("good", "there is no such checkpoint")
            return
        _keep(store, step, Replaces.WHOLE)
        _commit(store, Remove(key, min(highest + 1, MAX_GENERATION)))


def _present(store: Store, key: str) -> tuple[bytes | None, int]:
    """What the key has now, b"" if that cannot be read as a file, and the highest generation that can be seen of it."""
    current: bytes | None = None
    highest = store.highest_generation(key)
    for previous in (False, True):
        try:
            blob = store.read(key, previous=previous)
        except CheckpointNotFound:
            continue
        except Damaged as damage:
            if damage.reason is Reason.UNREADABLE:
                raise OSError(damage.errno, f"{store.path_of(key)}: {damage.detail}; nothing was changed") from damage
            blob = b""
        highest = max(highest, generation_in(blob))
        current = current if previous else blob
    return current, highest


def _replaces(blob: bytes) -> Replaces:
    try:
        open_any(blob)
    except (Damaged, TooNew):
        return Replaces.DAMAGED
    return Replaces.WHOLE


def _keep(store: Store, step: Step, replaces: Replaces) -> None:
    if replaces is not Replaces.ABSENT:
        step.quarantined = store.quarantine(step.target.real_key, _REPLACED)


def _commit(store: Store, change: Put | Remove) -> None:
    for failure in store.commit([change]).values():
        raise failure
