"""One bad night, from the first look to the end: as the manual tells it, and with every printed command pasted."""

from __future__ import annotations

import re
import shlex
import textwrap
from pathlib import Path

import pytest

from checkpointmanager import CheckpointManager
from checkpointmanager.testing import damage

from .command import Ended, called, rendered
from .state import CLAIMS, claim, crashed, make

MANUAL = Path(__file__).parents[2] / "tools/checkpoint_verify/README.md"
SCREEN = re.compile(r"^    \$ checkpoint-verify (.+)\n((?:(?:    (?!\$ ).*)?\n)+)", re.MULTILINE)
VARYING = (  # of the same length everywhere, so that lines break at the same words
    (re.compile(r"xxh3:[0-9a-f]{16}"), "xxh3:0123456789abcdef"),
    (re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d"), "2026-11-18 03:12:45"),
    (re.compile(r"\d{8}T\d{12}Z"), "20261118T031245678901Z"),
    (re.compile(r"\d+ s  "), "0 s  "),
    (re.compile(r"\(\d{3} kB\)"), "(276 kB)"),
)
COMMAND = re.compile(r"checkpoint-verify .+$", re.MULTILINE)


def power_loss(place: Path) -> tuple[Path, Path]:
    """A backup, and claims with a journal, three files behind it, and damage of three sorts."""
    backup = make(place / "backup", 5)
    directory = crashed(place / "claims", 5)
    damage.flip_bit(directory, "claim-0", 2000)  # an exact repair
    damage.truncate(directory, "claim-3", 60)  # only the backup helps
    (directory / "claim-4.json").rename(directory / ".previous-claim-4")  # deleted by hand
    return backup, directory


def printed(ended: Ended) -> list[str]:
    return [found[0].rstrip() for found in COMMAND.finditer(ended.out)]


def pasted(command: str, backup: Path) -> Ended:
    """What a user does: fills in the words in capitals, and answers the question."""
    words = [str(backup) if word == "BACKUP" else word for word in shlex.split(command)]
    assert words[0] == "checkpoint-verify"
    ended = called(*words[1:], typed="y\n")
    assert ended.code in (0, 1), ended.out
    return ended


def test_power_loss_damage_repair_restore_and_a_bundle(tmp_path: Path) -> None:
    backup, directory = power_loss(tmp_path)
    bundle = tmp_path / "evidence.tar"
    assert called("bundle", directory, bundle).code == 0

    first = called(directory)
    assert first.lines[0].startswith("DAMAGED: 2 of 4 checkpoints")
    waiting, done = printed(first), list[str]()
    while waiting:
        command = waiting.pop(0)
        if command in done or "--discard" in command:  # an alternative that costs more
            continue
        done.append(command)
        waiting += printed(pasted(command, backup / "claim-3.json"))

    verbs = {shlex.split(command)[1] for command in done}
    assert verbs == {"diagnose", "repair", "restore"}
    assert called("--strict", directory).code == 0
    # The wrong claim is removed by mistake, and comes back from the bundle.
    assert called("remove", "-d", directory, "claim-1", typed="y\n").code == 0
    back = called("restore", "-d", directory, "claim-1", f"{bundle}/claim-1.json", typed="y\n")
    assert back.code == 0, back.out
    assert called("--strict", directory).code == 0
    assert called(bundle).lines[0].startswith("DAMAGED: 2 of 4 checkpoints")
    with CheckpointManager(directory, CLAIMS) as manager:
        served = {key: one.data for key, one in manager.load().checkpoints.items()}
    assert served == {
        "claim-0": claim(0) | {"pods": ["pod-0", "pod-9"]},
        "claim-1": claim(1) | {"pods": ["newest"]},
        "claim-3": claim(3),
        "claim-4": claim(4),
        "ns/new": claim(9),
    }


def settled(text: str) -> str:
    for pattern, instead in VARYING:
        text = pattern.sub(instead, text)
    return "\n".join(line.rstrip() for line in text.strip().splitlines())


def test_the_screens_of_the_manual_are_real(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    power_loss(tmp_path)
    screens = list(SCREEN.finditer(MANUAL.read_text()))

    for command, text in (screen.groups() for screen in screens):
        real, manual = settled(rendered(*shlex.split(command), columns=80)), settled(textwrap.dedent(text))
        beginning, cut, _ = manual.partition("\n…")
        assert real.startswith(beginning) if cut else real == manual, command
    assert len(screens) >= 6
