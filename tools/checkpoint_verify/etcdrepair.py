"""repair for etcd://: the library's own recovery on the store itself, as its owner for as long as that takes."""

from __future__ import annotations

import argparse
import os
import sys
from typing import Any

from checkpointmanager import (
    ANY_KIND,
    CheckpointError,
    CheckpointManager,
    CorruptCheckpoint,
    DirectoryLocked,
    Outcome,
    RecoveryPlan,
)
from checkpointmanager._format.keys import is_name
from checkpointmanager._format.names import SUFFIX

from . import exitcodes, words
from .etcdurl import SCHEME, Place, place_in, words_in
from .targets import UsageError

Manager = CheckpointManager[Any]

_DONE = {Outcome.REPAIRED: "repaired", Outcome.ROLLED_BACK: "rolled back", Outcome.DISCARDED: "discarded"}


def repair(arguments: argparse.Namespace) -> int:
    """Plan without a lock, then apply the very same plans as the owner."""
    if arguments.command != "repair":
        raise UsageError(f"works on directories, not on {SCHEME}")
    place, keys = _targets(arguments)
    if arguments.json:
        raise UsageError(f"on {SCHEME} repair prints no JSON")
    with CheckpointManager[Any](place.open(read_only=True), ANY_KIND) as reader:
        plans = {key: reader.plan_recovery(key) for key in keys or _damaged(reader)}
    wanted = {key: plan for key, plan in plans.items() if _is_agreed(plan, arguments)}
    others = [plan for key, plan in plans.items() if key not in wanted]
    for plan in others:
        _say("left as it is" if plan.reason else "good already", plan)
    left = any(plan.reason for plan in others)
    for plan in wanted.values():
        _say("to be mended", plan)
    if not plans:
        print(f"GOOD: {place}: nothing to repair")
    if not wanted or not _is_wanted(arguments):
        return exitcodes.of(damaged=left or bool(wanted), unseen=False)
    return exitcodes.worst([exitcodes.of(damaged=left, unseen=False), _apply(place, wanted, arguments)])


def _targets(arguments: argparse.Namespace) -> tuple[Place, list[str]]:
    given = [*arguments.targets]
    places = {place_in(word) for word in words_in(arguments)}
    keys = []
    for word in given:
        name = os.path.basename(word) if word.startswith(SCHEME) else word
        key = name.removesuffix(SUFFIX)
        if is_name(key) and (name != key or not word.startswith(SCHEME)):
            keys.append(key)
    if len(places) != 1 or arguments.all == bool(keys):
        raise UsageError(f"name the KEYs or FILEs to repair, or {SCHEME}HOST:PORT/PREFIX with --all")
    return places.pop(), keys


def _damaged(manager: Manager) -> list[str]:
    problems = manager.verify().problems
    return [key for key, problem in problems.items() if isinstance(problem, CorruptCheckpoint)]


def _is_agreed(plan: RecoveryPlan, arguments: argparse.Namespace) -> bool:
    if plan.outcome is Outcome.NEEDS_ROLLBACK:
        return bool(arguments.rollback)
    return plan.outcome is Outcome.REPAIRED or bool(plan.outcome is Outcome.HOPELESS and arguments.discard)


def _is_wanted(arguments: argparse.Namespace) -> bool:
    if arguments.dry_run or arguments.yes:
        return bool(arguments.yes and not arguments.dry_run)
    if not sys.stdin.isatty():
        raise UsageError("not on a terminal, so nobody can be asked: give --yes, or --dry-run to see the plan")
    print("Mend them? The damaged bytes are kept. [y/N] ", end="", flush=True)
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def _apply(place: Place, plans: dict[str, RecoveryPlan], arguments: argparse.Namespace) -> int:
    try:
        store = place.open(owner="checkpoint-verify repair", lock_timeout=0)
    except DirectoryLocked as locked:
        print(f"checkpoint-verify repair: {words.shown(str(locked))}; stop it first, then try again", file=sys.stderr)
        return exitcodes.COULD_NOT_LOOK
    failed = False
    with CheckpointManager[Any](store, ANY_KIND) as manager:
        for plan in plans.values():
            try:
                done = plan.apply(rollback=arguments.rollback, discard=arguments.discard, manager=manager)
            except CheckpointError as error:
                failed = True
                print(f"left as it is: {words.shown(str(error))}")
                continue
            print(f"{_DONE.get(done.outcome, 'left as it is')}: {words.shown(plan.path)}: {words.shown(done.detail)}")
            if done.quarantined:
                print(f"  the damaged bytes are kept in {words.shown(done.quarantined)}")
    return exitcodes.of(damaged=False, unseen=failed)


def _say(what: str, plan: RecoveryPlan) -> None:
    print(f"{what}: {words.shown(plan.path)}: {words.shown(plan.detail.replace('with rollback', 'with --rollback'))}")
