"""On a terminal, in a pipe, and where rich is not installed."""

from __future__ import annotations

import os
import shlex
from pathlib import Path

import pytest

from checkpoint_verify.commands import COMMANDS, verify
from checkpoint_verify.screens import screen
from checkpointmanager.testing import damage

from .command import NAME, called, checkpoint_verify, environment, on_terminal
from .state import make


def test_colour_on_a_terminal_and_none_in_a_pipe(directory: Path) -> None:
    damage.flip_bit(directory, "claim-1")

    shown = on_terminal(directory)
    piped = checkpoint_verify(directory, TERM="xterm-256color")

    assert shown.colours
    assert shown.code == piped.code == 1
    assert shown.lines[0] == piped.lines[0]
    assert f"→ {NAME} diagnose {shlex.quote(f'{directory}/claim-1.json')}" in shown.out
    assert "\x1b" not in piped.out
    assert sum(line.startswith("damaged: ") for line in piped.lines) == 1


def test_colour_can_be_refused(directory: Path) -> None:
    damage.flip_bit(directory, "claim-1")

    for shown in (on_terminal(directory, NO_COLOR="1"), on_terminal(directory, TERM="dumb")):
        assert not shown.colours
        assert shown.lines[0].startswith("DAMAGED: 1 of 4")


def test_progress_is_shown_only_where_there_is_much_to_do_and_a_terminal_to_show_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(verify, "MANY_FILES", 3)
    monkeypatch.setattr(verify, "MANY_DIRECTORIES", 1)
    monkeypatch.setattr(screen, "_can_do_more", lambda _: True)

    many = called("--find", make(tmp_path / "many"))
    quiet = called("--quiet", "--find", tmp_path)
    few = called(make(tmp_path / "few", 2))

    assert "\rsearching directories: 1" in many.err
    assert "\rchecking files: 3" in many.err
    assert (quiet.out, quiet.err, few.err) == ("", "", "")


def test_without_rich_the_plain_screen_is_shown_on_a_terminal(directory: Path, tmp_path: Path) -> None:
    without = tmp_path / "without"
    (without / "rich").mkdir(parents=True)
    (without / "rich" / "__init__.py").write_text("raise ImportError('not installed')")
    (without / "shtab.py").write_text("raise ImportError('not installed')")
    path = f"{without}{os.pathsep}{environment()['PYTHONPATH']}"

    ended = on_terminal(directory, PYTHONPATH=path)
    completion = checkpoint_verify("--print-completion", "bash", PYTHONPATH=path)

    assert ended.code == 0
    assert not ended.colours
    assert "GOOD: 4 checkpoints" in ended.out
    assert completion.code == 2
    assert "pip install '.[cli]'" in completion.err


def test_a_locale_without_the_letters_does_not_end_the_run(directory: Path) -> None:
    damage.flip_bit(directory, "claim-1")

    ended = checkpoint_verify("diff", directory, "claim-0", "--previous", PYTHONIOENCODING="ascii")

    assert ended.code == 0
    assert "\\u2192" in ended.out


@pytest.mark.parametrize("command", sorted(COMMANDS))
def test_the_help_of_every_subcommand_has_examples_that_parse(command: str) -> None:
    from checkpoint_verify.commands import build_parser

    ended = called(command, "--help")
    examples = [line.split("  ")[1] for line in ended.lines if line.startswith("  checkpoint-verify ")]

    assert ended.code == 0
    assert examples
    assert "exit codes: 0 good" in ended.out
    for example in examples:
        words = example.split("|")[0].split(">")[0].replace("'", "").split()[1:]
        build_parser().parse_args(words if words[0] in COMMANDS else ["verify", *words])


def test_the_version_is_printed() -> None:
    assert called("--version").out.startswith("checkpoint-verify ")


@pytest.mark.parametrize("shell", ["bash", "zsh", "tcsh"])
def test_completion_is_printed_for_each_shell(shell: str) -> None:
    ended = called("--print-completion", shell)

    assert ended.code == 0
    assert "diagnose" in ended.out


def test_a_path_named_like_a_subcommand_is_given_with_a_dot(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make(tmp_path / "list")
    monkeypatch.chdir(tmp_path)

    assert called("./list").lines[0] == "GOOD: 4 checkpoints in ./list"
    assert called("list", "list").lines[-1] == "4 checkpoints"
