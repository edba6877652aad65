"""The subcommands, their parser, and the dispatch of a command line to one of them."""

from __future__ import annotations

import argparse
import sys
from types import ModuleType

from checkpointmanager import CheckpointError, __version__

from .. import exitcodes
from ..exitcodes import UsageError
from ..registry import NEWEST_KUBELET, parse_version
from ..screens import phrases
from ..targets import mirrored
from . import bundle, diagnose, diff, quarantine, remove, repair, restore, show, verify
from . import list as list_

COMMANDS: dict[str, ModuleType] = {
    "verify": verify,
    "list": list_,
    "show": show,
    "diff": diff,
    "diagnose": diagnose,
    "repair": repair,
    "restore": restore,
    "remove": remove,
    "quarantine": quarantine,
    "bundle": bundle,
}
CHANGING = ("repair", "restore", "remove", "quarantine")  # they have no opinion about kubelet's files
_OWN_OPTIONS = ("-h", "--help", "--version", "--print-completion")
_PATHS = ("paths", "targets", "directory", "prometheus", "output")
_DESCRIPTION = """\
Checks checkpoint directories and kubelet's own state files, and reports what is
damaged, why, and what to do. Without a subcommand it runs verify. Only repair,
restore, remove and quarantine purge take the lock, and only they change state files.
"""
_EXIT_CODES = """\
exit codes: 0 good, 1 damaged or not usable, 2 wrong usage, 3 could not look. 1 wins over 3.
"""
_EXAMPLES = """\
examples:
  checkpoint-verify /var/lib/agent/claims        is everything as it was written?
  checkpoint-verify /var/lib/kubelet             the same for kubelet's own state files
  checkpoint-verify etcd://127.0.0.1:2379/agents/node-7
  checkpoint-verify list /var/lib/agent/claims
  checkpoint-verify diagnose /var/lib/agent/claims/pod-7.json
  checkpoint-verify repair --dry-run --all /var/lib/agent/claims

`help COMMAND` explains a command. To check a path with the name of a subcommand, write ./list.
"""


def build_parser() -> argparse.ArgumentParser:
    """The parser of the whole command line, also used for shell completion."""
    parser = argparse.ArgumentParser(
        prog="checkpoint-verify",
        description=_DESCRIPTION,
        epilog=f"{_EXAMPLES}\n{_EXIT_CODES}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"checkpoint-verify {__version__}")
    parser.add_argument("--print-completion", metavar="SHELL", help="print the completion script for bash, zsh or tcsh")
    subparsers = parser.add_subparsers(dest="command", metavar="COMMAND")
    for name, module in COMMANDS.items():
        subparser = subparsers.add_parser(
            name,
            help=module.HELP,
            description=phrases.sentence((module.__doc__ or "").partition(": ")[2]),
            epilog=f"examples:\n{module.EXAMPLES}\n{_EXIT_CODES}",
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        module.add_arguments(subparser)
        if name not in CHANGING:
            subparser.add_argument("--json", action="store_true", help="print one JSON document")
            subparser.add_argument(
                "--kubelet-version",
                metavar="VERSION",
                type=_kubelet_version,
                help=f"judge kubelet's files as this version would, such as 1.35 (default: {NEWEST_KUBELET})",
            )
    return parser


def run(argv: list[str]) -> int:
    """Run a command line and return its exit code."""
    parser = build_parser()
    if argv[:1] == ["help"]:
        argv = [*argv[1:], "--help"]
    if argv and argv[0] not in COMMANDS and argv[0] not in _OWN_OPTIONS and not argv[0].startswith("--print-"):
        argv = ["verify", *argv]
    try:
        arguments = parser.parse_args(argv)
        if arguments.print_completion:
            return print_completion(parser, arguments.print_completion)
        if not arguments.command:
            parser.error("give a directory or a file to check")
    except SystemExit as end:
        return int(end.code or 0)
    try:
        with mirrored(arguments):
            code: int = COMMANDS[arguments.command].run(arguments)
    except UsageError as error:
        print(f"checkpoint-verify {arguments.command}: {error}", file=sys.stderr)
        return exitcodes.USAGE
    except CheckpointError as error:
        print(f"checkpoint-verify {arguments.command}: {phrases.shown(str(error))}", file=sys.stderr)
        return exitcodes.COULD_NOT_LOOK
    return code


def _kubelet_version(text: str) -> str:
    try:
        parse_version(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    return text


def print_completion(parser: argparse.ArgumentParser, shell: str) -> int:
    """Print the script for a shell. shtab, which generates it, comes with the extra [cli]."""
    try:
        import shtab  # noqa: PLC0415 - an optional extra
    except ImportError:
        print(
            "checkpoint-verify: completion needs shtab, which comes with the extra [cli]. Install it from a clone "
            "(pip install '.[cli]') or from a wheel "
            f"(pip install './checkpointmanager-{__version__}-py3-none-any.whl[cli]').",
            file=sys.stderr,
        )
        return exitcodes.USAGE
    if shell not in shtab.SUPPORTED_SHELLS:
        known = ", ".join(shtab.SUPPORTED_SHELLS)
        print(f"checkpoint-verify: no completion for {shell!r}; supported: {known}", file=sys.stderr)
        return exitcodes.USAGE
    _complete_paths(parser, shtab.FILE)
    print(shtab.complete(parser, shell))
    return exitcodes.GOOD


def _complete_paths(parser: argparse.ArgumentParser, files: object) -> None:
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for subparser in action.choices.values():
                _complete_paths(subparser, files)
        elif action.dest in _PATHS:
            action.complete = files  # type: ignore[attr-defined]
