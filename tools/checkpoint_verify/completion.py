"""Shell completion, generated from the parser of the command line."""

from __future__ import annotations

import argparse
import sys

from checkpointmanager import __version__

from . import exitcodes

_PATHS = ("paths", "targets", "directory", "prometheus", "output")


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
