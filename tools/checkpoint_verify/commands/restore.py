"""restore: put back one checkpoint from a file, or all of a backup; what they replace goes to quarantine."""

from __future__ import annotations

import argparse
import os

from checkpointmanager.format import LOCK, SUFFIX, Damaged, TooNew, open_sealed, repair

from .. import bundle, targets
from ..etcd import SCHEME
from ..exitcodes import UsageError
from ..findings.examine import Circumstances, examine_path
from ..findings.finding import Finding, State
from ..findings.scan import Surroundings, scan
from ..remedies.restore import put_back
from ..remedies.steps import Step, step_for
from ..screens import phrases
from ..targets import Target
from .change import Change, add_consent

HELP = "put back a checkpoint from a file, or all of a backup (needs the lock)"
EXAMPLES = """\
  checkpoint-verify restore /var/lib/agent/claims/pod-7.json /backup/claims/pod-7.json
  checkpoint-verify restore -d /var/lib/agent/claims pod-7 /var/lib/agent/claims/.previous-pod-7
  checkpoint-verify restore -d /var/lib/agent/claims /backup/claims
  checkpoint-verify restore -d /var/lib/agent/claims claims.tar          from a bundle

A FILE may also be a previous generation or a copy in quarantine. A whole restore changes only what the backup has.
"""
_CONTENT = Circumstances(named=True, content=True)


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
        chosen = [_step(target, examine_path(arguments.targets[1], _CONTENT))]
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
    if not any(found.header for found in scan(directory, Surroundings(directory), Circumstances())):
        raise UsageError(f"{phrases.shown(directory)} is not a directory of checkpoints")


def _whole(source: str, directory: str | None) -> tuple[str, list[tuple[Step, bytes]]]:
    if directory is None:
        raise UsageError("name the directory that the backup goes to, with -d")
    if bundle.is_redacted(source):
        raise UsageError("the bundle was made with --redact, so it has no data to restore")
    chosen = []
    for found in scan(source, Surroundings(source), Circumstances(content=True)):
        if found.kubelet is None and found.key:
            target = Target(os.path.join(directory, found.key + SUFFIX), found.key)
            chosen.append(_step(target, found))
    if not chosen:
        raise UsageError(f"{phrases.shown(source)} has no checkpoints")
    kept = {step.target.key for step, _ in chosen}
    for found in scan(directory, Surroundings(directory), Circumstances()):
        if found.key not in kept:
            why = "not in the backup"
            chosen.append((Step(Target(found.path, found.key), found, action="stays", detail=why), b""))
    return directory, chosen


def _step(target: Target, source: Finding) -> tuple[Step, bytes]:
    """What to do with the content of a file, and the bytes; exactly repaired if they are damaged."""
    if not target.key:
        raise UsageError(f"{phrases.shown(target.path)} is not the file of a key")
    step = step_for(target, "restored", f"from {source.path}")
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
    elif step.found.state is State.GOOD and _holds(target, blob):
        step.action, step.detail = "good", "it holds exactly this already"
    return step, blob


def _holds(target: Target, blob: bytes) -> bool:
    return examine_path(target.path, _CONTENT).blob == blob
