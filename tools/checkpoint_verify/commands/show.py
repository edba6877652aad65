"""show: print one checkpoint, header and data; a damaged one as far as it can be read, with the damage marked."""

from __future__ import annotations

import argparse
import sys
import time
from datetime import datetime

from checkpointmanager.format import Header, boot_id, encode_key

from .. import targets
from ..findings.damage import Spot, damaged_spot, mended
from ..findings.examine import examine_path
from ..findings.finding import Finding, State
from ..findings.summary import boot_word
from ..registry import KubeletFile, claims_in
from ..screens import phrases
from ..screens.documents import finding_document, print_document
from ..screens.report import STATE_STYLES, loads_in, verdict_word
from ..screens.screen import BAD, FAINT, ODD, STRONG, Screen, complain, screen

HELP = "print one checkpoint, header and data"
EXAMPLES = """\
  checkpoint-verify show /var/lib/agent/claims/pod-7.json
  checkpoint-verify show -d /var/lib/agent/claims pod-7
  checkpoint-verify show --raw /var/lib/kubelet/dra_manager_state | sha256sum
"""
AFTER_BYTES = 2000  # shown after the damaged place
HEX_ROW = 16
HEX_ROWS_AROUND = 2
DEEPEST_INDENT = 24  # levels; deeper nesting, perhaps without end, stays in that column
CLAIMS_SHOWN = 20


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("targets", nargs="+", metavar="KEY|FILE", help="a key (see -d), or the path of a file")
    targets.add_directory(parser)
    parser.add_argument("--previous", action="store_true", help="show the previous generation")
    parser.add_argument("--raw", action="store_true", help="copy the bytes to standard output, unchanged")


def run(arguments: argparse.Namespace) -> int:
    target = targets.one(arguments.targets, arguments.directory)
    path = target.previous if arguments.previous else target.path
    found = examine_path(path, content=True, kubelet_version=arguments.kubelet_version)
    if found.state is State.UNREADABLE:
        complain(path, found.detail)
    elif arguments.raw:
        _copy(found)
    elif arguments.json:
        print_document("show", found.exit_code, finding_document(found) | {"data": found.data})
    else:
        _print(found, screen())
    return found.exit_code


def _copy(found: Finding) -> None:
    sys.stdout.flush()
    sys.stdout.buffer.write(found.blob)
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
        screen.line(_sketch(found.blob))
    for warning in found.warnings:
        screen.say((warning, ODD), indent=2)
    if found.header or found.data is not None:
        screen.json(phrases.pretty_json(found.data))
    if found.state is State.DAMAGED:
        _print_damaged(found, found.blob, screen)


def _print_damaged(found: Finding, blob: bytes, screen: Screen) -> None:
    """The text up to the damage, the damaged place in hex, and what follows."""
    _, flip = mended(blob) if found.kubelet is None else (None, None)
    spot = damaged_spot(blob, flip)
    if found.kubelet is None and blob.strip(b"\0"):
        readable = blob if spot is None or flip else blob[: spot.offset]
        screen.line(_sketch(readable))
    if spot is None:
        screen.say(("The text is whole; the checksum does not show where it was changed.", ODD))
    elif blob:
        screen.line((f"── damaged: {spot.what} (offset {spot.offset} of {len(blob)}) ──", BAD))
        print_spot(blob, spot, screen)
        after = blob[spot.offset + spot.length :].strip(b"\0\n")
        if after and not flip and found.kubelet is None:
            screen.line(("── after the damage ──", FAINT))
            screen.line(phrases.shown(after[:AFTER_BYTES].decode("utf-8", "surrogateescape")))
    screen.line(f"→ {phrases.command('diagnose', found.path)}")


def header_pairs(header: Header, *, waits: bool = False) -> list[tuple[str, str]]:
    """A header, for people to read."""
    age = phrases.age(time.time() - header.written.timestamp())
    boot = boot_word(header.boot, boot_id())
    return [
        ("key", encode_key(header.key)),
        ("kind", f"{header.kind}, version {header.version}, readable by version {header.readable_by} and later"),
        ("generation", f"{header.generation:,}"),
        ("written", f"{phrases.moment(header.written)}, {age} ago, in {boot} boot".replace("this", "the current")),
        ("waits", "in the journal; the agent's next start puts it in its file" if waits else ""),
    ]


def kubelet_pairs(found: Finding) -> list[tuple[str, str]]:
    kubelet = found.kubelet
    assert kubelet
    right = "matches its content" if kubelet.actual == kubelet.expected else f"kubelet computes {kubelet.expected}"
    modified = datetime.fromtimestamp(found.modified).strftime("%Y-%m-%d %H:%M:%S")
    by_kubelet = kubelet.of_kubelet
    word = verdict_word(kubelet.verdict)
    return [
        ("kind", f"{kubelet.kind} {kubelet.format}".strip()),
        ("verdict", f"{word} to kubelet {kubelet.kubelet_version}" if by_kubelet else word),
        ("checksum", f"{kubelet.actual}, {right}" if kubelet.actual and kubelet.expected else kubelet.actual),
        ("loads in", f"kubelet {loads_in(found)}" if by_kubelet else ""),
        ("modified", modified),
        ("detail", kubelet.detail),
    ]


def print_claims(kubelet: KubeletFile, screen: Screen) -> None:
    """The claims that a file names, by UID: an operator may have to free their devices."""
    claims = list(claims_in(kubelet))
    if claims:
        screen.say((f"names {phrases.count(len(claims), 'claim')}", FAINT), indent=2)
    for uid, subject in claims[:CLAIMS_SHOWN]:
        screen.say(phrases.shown(uid), indent=4)
        screen.say(str(subject), indent=6)
    if len(claims) > CLAIMS_SHOWN:
        screen.say((f"… and {len(claims) - CLAIMS_SHOWN:,} more; `show` prints all", FAINT), indent=4)


def print_spot(blob: bytes, spot: Spot, screen: Screen) -> None:
    """Rows of hex around a place; the row with the place is marked."""
    marked = spot.offset // HEX_ROW
    last = max(min(len(blob) - 1, spot.offset + HEX_ROWS_AROUND * HEX_ROW), spot.offset) // HEX_ROW
    for row in range(max(0, marked - HEX_ROWS_AROUND), last + 1):
        piece = blob[row * HEX_ROW : (row + 1) * HEX_ROW]
        octets = " ".join(f"{byte:02x}" for byte in piece)
        text = "".join(chr(byte) if 32 <= byte < 127 else "." for byte in piece)
        mark, style = (">", BAD) if row == marked else (" ", FAINT)
        screen.line((f"  {mark} {row * HEX_ROW:08x}  {octets:<47}  {text}", style))
        if row == marked:
            under = " " * (14 + 3 * (spot.offset % HEX_ROW))
            screen.line((f"{under}^^ {spot.what} (offset {spot.offset})", BAD))


def _sketch(blob: bytes, limit: int = 64 << 10) -> str:
    """JSON text, indented as far as it can be read, whether or not it is a whole document."""
    out: list[str] = []
    depth, inside, escaped = 0, False, False
    for letter in blob[:limit].decode("utf-8", "surrogateescape"):
        if inside:
            out.append(phrases.shown(letter))
            inside, escaped = escaped or letter != '"', not escaped and letter == "\\"
        elif letter in "{[":
            depth += 1
            out.append(letter + _new_line(depth))
        elif letter in "}]":
            depth -= 1
            out.append(_new_line(depth) + letter)
        elif letter == ",":
            out.append("," + _new_line(depth))
        elif letter not in " \t\r\n":
            inside = letter == '"'
            out.append(": " if letter == ":" else phrases.shown(letter))
    return "".join(out) + ("…" if len(blob) > limit else "")


def _new_line(depth: int) -> str:
    return "\n" + "  " * min(max(depth, 0), DEEPEST_INDENT)
