"""The facts about one file, as show and diagnose print them."""

from __future__ import annotations

import time
from datetime import datetime

from checkpointmanager._format.envelope import Header

from . import anatomy, boots, words
from .finding import Finding, State
from .kubelet import NVIDIA, KubeletFile
from .report import loads_in, verdict_word
from .screen import BAD, FAINT, FINE, ODD, Screen
from .subject import claims_in

CLAIMS_SHOWN = 20
STATE_STYLES = {State.GOOD: FINE, State.DAMAGED: BAD, State.UNREADABLE: BAD, State.TOO_NEW: ODD, State.UNKNOWN: ODD}


def header_pairs(header: Header) -> list[tuple[str, str]]:
    """A header, for people to read."""
    age = words.age(time.time() - header.written.timestamp())
    boot = boots.word_for(header.boot, boots.current_boot())
    return [
        ("key", header.key),
        ("kind", f"{header.kind}, version {header.version}, readable by version {header.readable_by} and later"),
        ("generation", f"{header.generation:,}"),
        (
            "written",
            f"{header.written:%Y-%m-%d %H:%M:%S} UTC, {age} ago, in {boot} boot".replace("this", "the current"),
        ),
    ]


def kubelet_pairs(found: Finding) -> list[tuple[str, str]]:
    kubelet = found.kubelet
    assert kubelet
    right = "matches its content" if kubelet.actual == kubelet.expected else f"kubelet computes {kubelet.expected}"
    modified = datetime.fromtimestamp(found.modified).strftime("%Y-%m-%d %H:%M:%S")
    by_kubelet = kubelet.kind != NVIDIA
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
        screen.say((f"names {words.count(len(claims), 'claim')}", FAINT), indent=2)
    for uid, subject in claims[:CLAIMS_SHOWN]:
        screen.say(words.shown(uid), indent=4)
        screen.say(str(subject), indent=6)
    if len(claims) > CLAIMS_SHOWN:
        screen.say((f"… and {len(claims) - CLAIMS_SHOWN:,} more; `show` prints all", FAINT), indent=4)


def print_spot(blob: bytes, spot: anatomy.Spot, screen: Screen) -> None:
    for row in anatomy.hex_context(blob, spot):
        screen.verbatim(f"  {row}", BAD if row.startswith((">", " " * 12)) else FAINT)
