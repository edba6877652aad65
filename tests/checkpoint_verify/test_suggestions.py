"""Every command that the tool suggests is run as it is printed, for each sort of damage."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from checkpointmanager.testing import damage

from .command import NOBODY, called, environment, rendered
from .state import make, snapshot

KEY = "claim-1"
_PLACEHOLDER = re.compile(r"\b[A-Z][A-Z-]{3,}\b")


def folder(directory: Path) -> None:
    path = directory / f"{KEY}.json"
    path.unlink()
    path.mkdir()
    (path / "inside").write_text("kept")


def link(directory: Path) -> None:
    os.rename(directory / f"{KEY}.json", directory / "elsewhere")
    (directory / f"{KEY}.json").symlink_to("elsewhere")


def fifo(directory: Path) -> None:
    (directory / f"{KEY}.json").unlink()
    os.mkfifo(directory / f"{KEY}.json")


def renamed(directory: Path) -> None:
    os.rename(directory / "claim-2.json", directory / f"{KEY}.json")


def foreign(directory: Path) -> None:
    (directory / f"{KEY}.json").write_text('{"a": 1}')


HURTS: dict[str, Callable[[Path], Any]] = {
    "flipped": lambda directory: damage.flip_bit(directory, KEY),
    "cut": lambda directory: damage.truncate(directory, KEY, 60),
    "edited": lambda directory: damage.edit_by_hand(directory, KEY),
    "edited, with a previous generation": lambda directory: damage.edit_by_hand(directory, "claim-0"),
    "empty": lambda directory: (directory / f"{KEY}.json").write_bytes(b""),
    "folder": folder,
    "link": link,
    "fifo": fifo,
    "renamed": renamed,
    "foreign": foreign,
}


def commands_in(out: str) -> list[str]:
    """The commands to copy: the next steps of verify, and the indented lines under a remedy."""
    return re.findall(r"(?:Next: |^ {5})((?:checkpoint-verify|mv|cp|chmod|chown|ls) .+)$", out, re.MULTILINE)


def run_as_printed(command: str, outside: Path) -> int:
    words = shlex.split(command)
    if words[0] == "checkpoint-verify":
        return called(*words[1:], typed="y\n").code  # it asks for confirmation, as for an operator
    moved = command.replace(" /root/", f" {outside}/")
    return subprocess.run(["/bin/sh", "-c", moved], check=False, timeout=500).returncode


ODD_NAMES = ("with spaces 'and' $signs", "-d")


@pytest.mark.parametrize(
    ("hurt", "name"),
    [
        *(pytest.param(hurt, "claims", id=what) for what, hurt in HURTS.items()),
        *(pytest.param(HURTS[what], name, id=f"{what} in {name}") for what in ("cut", "folder") for name in ODD_NAMES),
    ],
)
def test_what_diagnose_and_verify_suggest_works_as_printed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, hurt: Callable[[Path], Any], name: str
) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    monkeypatch.chdir(tmp_path)

    def hurt_anew() -> None:
        shutil.rmtree(name, ignore_errors=True)
        hurt(make(tmp_path / name))

    hurt_anew()
    [diagnose] = [step for step in commands_in(called("--", name).out) if " diagnose " in step]
    diagnosed = called(*shlex.split(diagnose)[1:])
    suggested = [command for command in commands_in(diagnosed.out) if not _PLACEHOLDER.search(command)]

    assert diagnosed.code == 1
    assert suggested
    for command in suggested:
        hurt_anew()
        assert run_as_printed(command, outside) in (0, 1), command
        still_damaged = called("-q", shlex.split(diagnose)[-1]).code == 1
        assert still_damaged is (" show " in command), command


@pytest.mark.parametrize("key", [KEY, "claim-0"], ids=["alone", "with a previous generation"])
def test_what_is_in_a_file_s_place_is_moved_by_the_operator_never_by_repair(directory: Path, key: str) -> None:
    path = directory / f"{key}.json"
    path.unlink()
    path.mkdir()
    (path / "inside").write_text("kept")
    before = snapshot(directory)

    ended = called("repair", "--yes", "--discard", "--rollback", path)
    move, refill = called("diagnose", "--json", path).document["remedies"]

    assert ended.code == 1
    assert f"a directory has its name; move it away first: {move['commands'][0]}" in ended.out
    assert snapshot(directory) == before
    assert move["commands"] == [f"mv {path} /root/{path.name}.$(date +%s)"]
    source = "BACKUP" if key == KEY else directory / f".previous-{key}"
    assert refill["commands"] == [f"checkpoint-verify restore {path} {source}"]


def test_every_printed_command_begins_with_the_name_that_was_called(directory: Path, tmp_path: Path) -> None:
    damage.flip_bit(directory, KEY)
    script = tmp_path / "checkpoint-verify"
    script.write_text(f"#!{sys.executable}\nfrom checkpoint_verify.cli import main\nraise SystemExit(main())\n")
    script.chmod(0o755)
    by_module = [sys.executable, "-m", "checkpoint_verify"]
    on_path = environment(PATH=f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    calls = {
        "./checkpoint-verify": (["./checkpoint-verify"], environment()),
        shlex.join(by_module): (by_module, environment()),
        "checkpoint-verify": (["checkpoint-verify"], on_path),
    }
    for name, (words, env) in calls.items():
        run = [*words, "--", str(directory)]
        out = subprocess.run(run, env=env, cwd=tmp_path, check=False, capture_output=True, timeout=500).stdout
        printed = re.findall(r"(?:Next: |next +)(.*?) (?:repair|diagnose) ", out.decode())
        assert (len(printed), set(printed)) == (2, {name})


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files to another user")
@pytest.mark.parametrize("sort", ["chmod", "chown"])
def test_one_command_mends_a_whole_group(tmp_path: Path, sort: str) -> None:
    directory = make(tmp_path / "with spaces", 8)
    for path in (directory, *directory.iterdir()):
        os.chown(path, NOBODY, NOBODY)
    for path in directory.glob("*.json"):
        if sort == "chmod":
            path.chmod(0o200)
        else:
            os.chown(path, 0, 0)

    problems = [line for line in called(directory).lines if line.startswith("not-usable: ")]

    assert len(problems) == 1
    assert called(directory).code == 1
    subprocess.run(["/bin/sh", "-c", problems[0].partition("Next: ")[2]], check=True, timeout=500)
    assert called("--strict", directory).code == 0


def test_a_path_is_never_capitalised(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    kubelet = tmp_path / "kubelet"
    kubelet.mkdir()
    (kubelet / "device-plugins").symlink_to(tmp_path)

    assert "kubelet/device-plugins is a link" in " ".join(rendered("kubelet", columns=80).split())
