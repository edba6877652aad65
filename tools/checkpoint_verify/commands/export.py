"""export: write all checkpoints to one JSON document, for a support bundle; damaged ones as base64 with a reason."""

from __future__ import annotations

import argparse
import base64
import json
import os
import sys
from collections.abc import Iterator
from contextlib import nullcontext, suppress
from typing import Any

from checkpointmanager._format.names import LOCK
from checkpointmanager._format.reason import reason_of

from .. import exitcodes
from ..findings.examine import Circumstances, unreadable
from ..findings.finding import Finding, State
from ..findings.scan import Surroundings, findings_at
from ..jsonpath import Masks
from ..screens import phrases
from ..screens.documents import finding_document, lock_document, path_members, preamble, replaced
from ..targets import UsageError

HELP = "write everything to one JSON document, for a support bundle"
EXAMPLES = """\
  checkpoint-verify export /var/lib/agent/claims > claims.json
  checkpoint-verify export --mask '$.data.token' --mask '$..password' -o bundle.json /var/lib/agent/claims
  checkpoint-verify export /var/lib/agent/claims /var/lib/kubelet | jq '.checkpoints[].state'
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("paths", nargs="*", metavar="PATH", default=["."], help="directories or files (default: .)")
    parser.add_argument("-o", "--output", metavar="FILE", help="write to FILE, readable only by you (default: stdout)")
    parser.add_argument(
        "--mask",
        action="append",
        default=[],
        metavar="PATH",
        help="hide the values at PATH: $.data.token, $.data.pods[*].name, $..password; may be repeated",
    )
    parser.add_argument(
        "--unmasked-damage",
        action="store_true",
        help="with --mask: include the bytes of damaged files, although nothing in them can be masked",
    )


def run(arguments: argparse.Namespace) -> int:
    try:
        masks = Masks(arguments.mask)
    except ValueError as error:
        raise UsageError(str(error)) from None
    _refuse_to_write_among(arguments.paths, arguments.output)
    with_bytes = arguments.unmasked_damage or not masks
    circumstances = Circumstances(kubelet_version=arguments.kubelet_version, content=True)
    codes: list[int] = []
    with replaced(arguments.output, 0o600) if arguments.output else nullcontext(sys.stdout) as stream:
        stream.write('{"checkpoints":[')
        separator = "\n"
        directories = []
        for path in dict.fromkeys(arguments.paths):
            around = Surroundings(path)
            for found in _findings(path, around, circumstances):
                codes.append(found.exit_code)
                stream.write(separator + json.dumps(_document(found, masks, with_bytes)))
                separator = ",\n"
            directories.append(_directory_document(around))
        code = exitcodes.worst(codes)
        rest = preamble("export", code) | {"masks": arguments.mask, "directories": directories}
        stream.write("\n]," + json.dumps(rest)[1:] + "\n")
    for pattern in masks.missed:
        print(
            f"checkpoint-verify: warning: {pattern} matched nothing, so it masked nothing; check its spelling",
            file=sys.stderr,
        )
    return code


def _findings(path: str, around: Surroundings, circumstances: Circumstances) -> Iterator[Finding]:
    try:
        yield from findings_at(path, around, circumstances)
    except OSError as error:
        print(f"checkpoint-verify: {phrases.shown(path)}: {reason_of(error)}", file=sys.stderr)
        yield unreadable(path, error)


def _document(found: Finding, masks: Masks, with_bytes: bool) -> dict[str, Any]:
    document = finding_document(found) | {"data": found.data}
    if found.state not in (State.GOOD, State.UNREADABLE) and found.blob:
        if with_bytes:
            document["base64"] = base64.b64encode(found.blob).decode()
        else:
            document["data"] = None
            document["withheld"] = "the bytes cannot be masked; --unmasked-damage includes them"
    masks.apply(document)
    return document


def _directory_document(around: Surroundings) -> dict[str, Any]:
    return path_members(around.path) | {
        "lock": lock_document(around.lock),
        "previous": around.previous,
        "temp_files": len(around.temps),
        "quarantined": around.quarantined,
        "foreign": around.foreign,
    }


def _refuse_to_write_among(paths: list[str], output: str | None) -> None:
    """A bundle in the directory that it is made from would be a damaged checkpoint there."""
    if output is None:
        with suppress(OSError):  # a shell has already created the file; a program may have passed us none
            output = f"/dev/fd/{sys.stdout.fileno()}"
    if output is None:
        return
    target = os.path.realpath(output)
    for path in paths:
        folder = path if os.path.isdir(path) else os.path.dirname(path) or "."
        is_one_of_ours = folder is path or os.path.lexists(os.path.join(folder, LOCK))
        inside = os.path.commonpath((target, os.path.realpath(folder))) == os.path.realpath(folder)
        if (is_one_of_ours and inside) or target == os.path.realpath(path):
            raise UsageError(
                f"the output {phrases.shown(target)} would be in the directory being exported; write it elsewhere"
            )
