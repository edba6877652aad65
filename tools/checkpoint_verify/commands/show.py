"""show: print one checkpoint, header and data; a damaged one as far as it can be read, with the damage marked."""

from __future__ import annotations

import argparse
import sys

from .. import targets
from ..findings import damage, disk
from ..findings.examine import Circumstances, examine_path
from ..findings.finding import Finding, State
from ..screens import phrases
from ..screens.documents import finding_document, print_document
from ..screens.report import STATE_STYLES, header_pairs, kubelet_pairs, print_spot
from ..screens.screen import BAD, FAINT, ODD, STRONG, Screen, screen

HELP = "print one checkpoint, header and data"
EXAMPLES = """\
  checkpoint-verify show /var/lib/agent/claims/pod-7.json
  checkpoint-verify show -d /var/lib/agent/claims pod-7
  checkpoint-verify show --raw /var/lib/kubelet/dra_manager_state | sha256sum
"""
AFTER_BYTES = 2000  # shown after the damaged place


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("targets", nargs="+", metavar="KEY|FILE", help="a key (see -d), or the path of a file")
    targets.add_directory(parser)
    parser.add_argument("--previous", action="store_true", help="show the previous generation")
    parser.add_argument("--raw", action="store_true", help="copy the bytes to standard output, unchanged")
    parser.add_argument("--json", action="store_true", help="print one JSON document")


def run(arguments: argparse.Namespace) -> int:
    target = targets.one(arguments.targets, arguments.directory)
    path = target.previous if arguments.previous else target.path
    found = examine_path(path, Circumstances(named=True, kubelet_version=arguments.kubelet_version, content=True))
    if found.state is State.UNREADABLE:
        print(f"checkpoint-verify: {phrases.shown(path)}: {found.detail}", file=sys.stderr)
    elif arguments.raw:
        _copy(found)
    elif arguments.json:
        print_document("show", found.exit_code, finding_document(found) | {"data": found.data})
    else:
        _print(found, screen())
    return found.exit_code


def _copy(found: Finding) -> None:
    sys.stdout.flush()
    for piece in [found.blob] if found.waits else disk.pieces(found.path):
        sys.stdout.buffer.write(piece)
    sys.stdout.buffer.flush()


def _print(found: Finding, screen: Screen) -> None:
    state = f" ({found.reason}: {found.detail})" if found.state is State.DAMAGED else ""
    screen.say((found.word.upper(), STATE_STYLES[found.state]), " ", (phrases.shown(found.path), STRONG), state)
    if found.header:
        screen.pairs(header_pairs(found.header, waits=found.waits))
    elif found.kubelet:
        screen.pairs(kubelet_pairs(found))
    elif found.state is State.TOO_NEW:
        screen.say(f"Written by a newer program: {found.detail}.", indent=2)
        screen.verbatim(damage.sketch(found.blob))
    for warning in found.warnings:
        screen.say((warning, ODD), indent=2)
    if found.blob and (found.header or found.data is not None):
        screen.json(phrases.pretty_json(found.data))
    elif found.header:
        screen.say(("Too large to show here; use --raw.", ODD))
    if found.state is State.DAMAGED:
        _print_damaged(found, found.blob, screen)


def _print_damaged(found: Finding, blob: bytes, screen: Screen) -> None:
    """The text up to the damage, the damaged place in hex, and what follows."""
    _, flip = damage.mended(blob) if found.kubelet is None else (None, None)
    spot = damage.damaged_spot(blob, flip)
    if found.kubelet is None and blob.strip(b"\0"):
        readable = blob if spot is None or flip else blob[: spot.offset]
        screen.verbatim(damage.sketch(readable))
    if spot is None:
        screen.say(("The text is whole; the checksum does not show where it was changed.", ODD))
    elif blob:
        screen.verbatim(f"── damaged: {spot.what} (offset {spot.offset} of {len(blob)}) ──", BAD)
        print_spot(blob, spot, screen)
        after = blob[spot.offset + spot.length :].strip(b"\0\n")
        if after and not flip and found.kubelet is None:
            screen.verbatim("── after the damage ──", FAINT)
            screen.verbatim(phrases.shown(after[:AFTER_BYTES].decode("utf-8", "surrogateescape")))
    screen.verbatim(f"→ {phrases.command('diagnose', found.path)}")
