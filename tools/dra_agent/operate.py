"""`dra-agent claims` and `dra-agent release`: list what a running agent holds, and free an orphan by hand.

Exit codes: 0 done, 1 refused or failed, 2 wrong usage.
"""

from __future__ import annotations

import argparse
import glob
import json
import os
import sys
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from draState import DRAError
from draState.plugin import HeldClaim, HeldClaims

COMMANDS = ("claims", "release")
SOCKETS = "/var/lib/kubelet/plugins/*/dra*.sock"
EXAMPLES = """examples:
  dra-agent claims                      claims that hold devices, and their pods
  dra-agent release 0c9f3a52-…          after asking; only if it is an orphan
  dra-agent release --yes 0c9f3a52-…    without asking, for scripts
"""


def operate(argv: Sequence[str]) -> int:
    """Run one of COMMANDS."""
    parser = _parser()
    arguments = parser.parse_args(argv)
    sockets = [arguments.socket] if arguments.socket else sorted(glob.glob(SOCKETS))
    if len({os.path.dirname(path) for path in sockets}) != 1:
        found = "none was found" if not sockets else "there are several: " + ", ".join(sockets)
        parser.error(f"name the agent's socket with --socket; {found}")
    complaints = []
    for path in sockets:  # in a rolling update one of them belongs to an agent that stands by
        try:
            with HeldClaims(path) as held:
                if arguments.command == "claims":
                    return _show(held.list(), arguments.json)
                return _release(held, arguments)
        except DRAError as error:
            complaints.append(str(error))
    return _complain("; ".join(complaints))


def _show(claims: Sequence[HeldClaim], as_json: bool) -> int:
    if as_json:
        print(json.dumps([asdict(claim) for claim in claims], indent=1))
        return 0
    for claim in claims:
        print(_line(claim))
    print(f"{len(claims)} claims, {sum(bool(claim.orphan) for claim in claims)} orphans")
    return 0


def _release(held: HeldClaims, arguments: argparse.Namespace) -> int:
    claim = next((claim for claim in held.list() if claim.uid == arguments.uid), None)
    if claim is None:
        return _complain(f"claim {arguments.uid} is not known here: no device is held for it; see dra-agent claims")
    print(_line(claim))
    if not claim.orphan and not arguments.force:
        return _complain("it is not an orphan: a pod may be using it. Nothing was changed; --force releases it anyway")
    if not arguments.yes and not _agreed():
        return _complain("Nothing was changed.")
    if error := held.release(claim.uid, force=arguments.force):
        return _complain(error)
    print("released: its devices are free")
    return 0


def _agreed() -> bool:
    if not sys.stdin.isatty():
        print("dra-agent: cannot ask without a terminal; give --yes", file=sys.stderr)
        return False
    try:
        return input("Tear it down and free its devices? [y/N] ").strip().lower() in ("y", "yes")
    except (EOFError, KeyboardInterrupt):
        print()
        return False


def _line(claim: HeldClaim) -> str:
    name = f"{claim.namespace}/{claim.name}" if claim.name else "(name not known)"
    parts = [claim.uid, name, claim.phase or "no phase", "devices: " + (", ".join(claim.devices) or "UNKNOWN")]
    if claim.pods:
        parts.append("pods: " + ", ".join(claim.pods))
    if claim.orphan:
        parts.append(f"ORPHAN: {claim.orphan}")
    if claim.unknown:
        parts.append(f"UNKNOWN: {claim.unknown}")
    return "  ".join(parts)


def _parser() -> argparse.ArgumentParser:
    style: Any = {"epilog": EXAMPLES, "formatter_class": argparse.RawDescriptionHelpFormatter}
    common = argparse.ArgumentParser(add_help=False)
    common.add_argument("--socket", metavar="PATH", help=f"the agent's socket (default: the only one of {SOCKETS})")
    parser = argparse.ArgumentParser(
        "dra-agent", description="Show and release the claims of a running agent.", **style
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="claims | release")
    claims = commands.add_parser("claims", help="list every claim that holds devices", parents=[common], **style)
    claims.add_argument("--json", action="store_true", help="print JSON")
    release = commands.add_parser("release", help="free the devices of an orphan", parents=[common], **style)
    release.add_argument("uid", help="UID of the claim")
    release.add_argument("--yes", action="store_true", help="do not ask")
    release.add_argument("--force", action="store_true", help="even if a pod or a process may be using it")
    return parser


def _complain(text: str) -> int:
    print(f"dra-agent: {text}", file=sys.stderr)
    return 1
