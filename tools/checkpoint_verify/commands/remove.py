"""remove: remove checkpoints as their owner would: with rm, a journal brings them back. Their bytes are kept."""

from __future__ import annotations

import argparse
import errno

from .. import targets
from ..exitcodes import UsageError
from ..findings.examine import examine_path
from ..targets import Target
from .change import Change, add_consent
from .restore import refuse_what_is_not_ours, take_away
from .steps import Step

HELP = "remove checkpoints (needs the lock)"
EXAMPLES = """\
  checkpoint-verify remove /var/lib/agent/claims/pod-7.json
  checkpoint-verify remove -d /var/lib/agent/claims pod-7 pod-8
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("targets", nargs="+", metavar="KEY|FILE", help="keys (see -d), or the paths of their files")
    targets.add_directory(parser)
    add_consent(parser)


def run(arguments: argparse.Namespace) -> int:
    given, _ = targets.resolve(arguments.targets, arguments.directory)
    if not given:
        raise UsageError("give the KEYs or FILEs to remove")
    directory = given[0].directory
    if any(target.directory != directory for target in given):
        raise UsageError("all files must be in one directory: its lock is needed")
    refuse_what_is_not_ours(directory)
    change = Change("remove", directory, [_step(target) for target in given], arguments)
    return change.carry_out(change.on_store(take_away))


def _step(target: Target) -> Step:
    if not target.key:
        raise UsageError(f"{target.path} is not the file of a key")
    detail = "the agent starts this key from scratch"
    step = Step(target, examine_path(target.path), action="removed", detail=detail)
    if step.found.errno == errno.ENOENT:
        step.decide("good", "there is no such checkpoint")
    return step
