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
from typing import Any

import grpc

from .wire import LIST_CLAIMS, RELEASE_CLAIM, Method

COMMANDS = ("claims", "release")
SOCKETS = "/var/lib/kubelet/plugins/*/dra*.sock"
SECONDS = 60.0  # the agent may have to ask the API server for every claim
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
            with grpc.insecure_channel(f"unix:{path}") as channel:
                claims = _call(channel, LIST_CLAIMS, LIST_CLAIMS.request()).claims
                if arguments.command == "claims":
                    return _show(claims, arguments.json)
                return _release(channel, claims, arguments)
        except grpc.RpcError as error:
            complaints.append(f"{path}: the agent does not answer: {error.details()}")
    return _complain("; ".join(complaints))


def _show(claims: Sequence[Any], as_json: bool) -> int:
    fields = ("uid", "namespace", "name", "phase", "devices", "pods", "orphan", "unknown")
    if as_json:
        rows = [{field: _plain(getattr(claim, field)) for field in fields} for claim in claims]
        print(json.dumps(rows, indent=1))
        return 0
    for claim in claims:
        print(_line(claim))
    print(f"{len(claims)} claims, {sum(bool(claim.orphan) for claim in claims)} orphans")
    return 0


def _release(channel: grpc.Channel, claims: Sequence[Any], arguments: argparse.Namespace) -> int:
    known = {claim.uid: claim for claim in claims}
    claim = known.get(arguments.uid)
    if claim is None:
        return _complain(f"claim {arguments.uid} is not known here: no device is held for it; see dra-agent claims")
    print(_line(claim))
    if not claim.orphan and not arguments.force:
        return _complain("it is not an orphan: a pod may be using it. Nothing was changed; --force releases it anyway")
    if not arguments.yes and not _agreed():
        return _complain("Nothing was changed.")
    reply = _call(channel, RELEASE_CLAIM, RELEASE_CLAIM.request(uid=claim.uid, force=arguments.force))
    if reply.error:
        return _complain(reply.error)
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


def _line(claim: Any) -> str:
    name = f"{claim.namespace}/{claim.name}" if claim.name else "(name not known)"
    parts = [claim.uid, name, claim.phase or "no phase", "devices: " + (", ".join(claim.devices) or "UNKNOWN")]
    if claim.pods:
        parts.append("pods: " + ", ".join(claim.pods))
    if claim.orphan:
        parts.append(f"ORPHAN: {claim.orphan}")
    if claim.unknown:
        parts.append(f"UNKNOWN: {claim.unknown}")
    return "  ".join(parts)


def _plain(value: Any) -> Any:
    return value if isinstance(value, str) else list(value)


def _call(channel: grpc.Channel, method: Method, request: Any) -> Any:
    call = channel.unary_unary(
        method.path, request_serializer=method.request.SerializeToString, response_deserializer=method.reply.FromString
    )
    return call(request, timeout=SECONDS)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        "dra-agent",
        description="Show and release the claims of a running agent.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="claims | release")
    for name, text in zip(
        COMMANDS, ("list every claim that holds devices", "free the devices of an orphan"), strict=True
    ):
        formatter = argparse.RawDescriptionHelpFormatter
        command = commands.add_parser(name, help=text, epilog=EXAMPLES, formatter_class=formatter)
        command.add_argument(
            "--socket", metavar="PATH", help=f"the agent's socket (default: the only one of {SOCKETS})"
        )
        if name == "claims":
            command.add_argument("--json", action="store_true", help="print JSON")
        else:
            command.add_argument("uid", help="UID of the claim")
            command.add_argument("--yes", action="store_true", help="do not ask")
            command.add_argument("--force", action="store_true", help="even if a pod or a process may be using it")
    return parser


def _complain(text: str) -> int:
    print(f"dra-agent: {text}", file=sys.stderr)
    return 1
