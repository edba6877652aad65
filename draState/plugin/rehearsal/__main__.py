"""The command `python -m draState.plugin.rehearsal`: plays kubelet and the API server for your driver.

Exit codes: 0 if every act passed, 1 if one failed, 2 if the driver does not start.
"""

from __future__ import annotations

import argparse
import json
import sys
import textwrap
from collections.abc import Sequence
from dataclasses import asdict

from .._driver import CLAIM_VARIABLE, DEVICE_VARIABLE
from . import ACTS, NotReady, Result, rehearse

WIDTH = 110
MARGIN, INNER = " " * 6, " " * 15
EXAMPLES = """\
examples:
  python -m draState.plugin.rehearsal nic:Nic                    all acts, as in CI
  python -m draState.plugin.rehearsal nic:Nic kill reboot        two of them
  python -m draState.plugin.rehearsal nic:Nic --json | jq .failure

acts:
"""
EXIT_CODES = """
exit codes: 0 if every act passed, 1 if one failed, 2 if the driver does not start
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Play the acts, print each result as it comes, and return the exit code."""
    parser = _parser()
    arguments = parser.parse_args(argv)
    if unknown := [name for name in arguments.acts if name not in ACTS]:
        parser.error(f"there is no act {unknown[0]!r}, only {', '.join(ACTS)}")
    failed = 0
    try:
        for result in rehearse(arguments.driver, arguments.acts or tuple(ACTS)):
            failed += not result.passed
            print(json.dumps(asdict(result)) if arguments.json else _shown(result), flush=True)  # noqa: T201
    except NotReady as error:
        print(f"rehearsal: {arguments.driver} cannot be rehearsed: {error}", file=sys.stderr)  # noqa: T201
        return 2
    return 1 if failed else 0


def _shown(result: Result) -> str:
    lines = [f"{'PASS' if result.passed else 'FAIL'}  {result.act}: {result.what}"]
    lines += textwrap.wrap(
        f"kubelet: {'; '.join(result.events)}", WIDTH, initial_indent=MARGIN, subsequent_indent=INNER
    )
    for pod, given in result.pods.items():
        own = [line for line in given.edits if not line.startswith((DEVICE_VARIABLE, CLAIM_VARIABLE))]
        lines.append(f"{MARGIN}pod {pod} got {given.device}: {', '.join([*given.cdi_ids, *own])}")
    if not result.passed:
        lines.append(f"{MARGIN}because {result.failure}")
        lines += [f"{MARGIN}| {line}" for line in result.log]
    return "\n".join(lines)


def _parser() -> argparse.ArgumentParser:
    acts = "".join(f"  {name:<12}{act.__doc__}\n" for name, act in ACTS.items())
    parser = argparse.ArgumentParser(
        "python -m draState.plugin.rehearsal",
        description="Plays kubelet and the API server for a driver, which runs in real processes on a node in a\n"
        "temporary folder, and prints what pods would have got.",
        epilog=EXAMPLES + acts + EXIT_CODES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("driver", metavar="module:Driver", help="your subclass of draState.plugin.Driver")
    parser.add_argument("acts", metavar="ACT", nargs="*", help="only these acts, after start")
    parser.add_argument("--json", action="store_true", help="one JSON object per act")
    return parser


if __name__ == "__main__":
    sys.exit(main())
