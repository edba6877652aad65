"""The screens in the manual are what the command prints on a terminal of 80 columns."""

from __future__ import annotations

import re
import shlex
import textwrap
from pathlib import Path

import pytest

from checkpointmanager.testing import damage

from .command import rendered
from .state import crashed, make

MANUAL = Path(__file__).parents[2] / "tools/checkpoint_verify/README.md"
SCREEN = re.compile(r"^    \$ checkpoint-verify (.+)\n((?:(?:    (?!\$ ).*)?\n)+)", re.MULTILINE)
VARYING = (  # of the same length everywhere, so that lines break at the same words
    (re.compile(r"xxh3:[0-9a-f]{16}"), "xxh3:0123456789abcdef"),
    (re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d"), "2026-11-18 03:12:45"),
    (re.compile(r"\d{8}T\d{12}Z"), "20261118T031245678901Z"),
    (re.compile(r"\d+ s  "), "0 s  "),
    (re.compile(r"\(\d{3} kB\)"), "(276 kB)"),
)


def screens(directory: Path) -> list[tuple[str, str]]:
    """Every command of the manual's screens, in order, and what it prints in the night that the manual tells of."""
    make(directory / "backup", 5)
    claims = crashed(directory / "claims", 5)
    damage.flip_bit(claims, "claim-0", 2000)
    damage.truncate(claims, "claim-3", 60)
    (claims / "claim-4.json").rename(claims / ".previous-claim-4")
    commands = [found[1] for found in SCREEN.finditer(MANUAL.read_text())]
    return [(command, settled(rendered(*shlex.split(command), columns=80))) for command in commands]


def settled(text: str) -> str:
    for pattern, instead in VARYING:
        text = pattern.sub(instead, text)
    return "\n".join(line.rstrip() for line in text.strip().splitlines())


def test_the_screens_of_the_manual_are_real(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    shown = [settled(textwrap.dedent(found[2])) for found in SCREEN.finditer(MANUAL.read_text())]

    for (command, real), manual in zip(screens(tmp_path), shown, strict=True):
        beginning, cut, _ = manual.partition("\n…")
        assert real.startswith(beginning) if cut else real == manual, command
    assert len(shown) >= 6
