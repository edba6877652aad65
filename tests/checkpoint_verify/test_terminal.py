"""On a terminal, in a pipe, and where rich is not installed."""

from __future__ import annotations

import os
import shlex
from pathlib import Path

import pytest

from checkpoint_verify.commands import COMMANDS
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


def test_a_progress_bar_only_where_there_is_much_to_do_and_a_terminal_to_show_it(tmp_path: Path) -> None:
    directory = tmp_path / "many"
    directory.mkdir()
    for number in range(6000):
        (directory / f"k{number}.json").touch()

    shown = on_terminal("--quiet", directory)
    watched = on_terminal(directory)

    assert shown.out == ""
    assert "checking" in watched.out
    assert "damaged 6,000 files in " in " ".join(watched.out.split())


@pytest.mark.parametrize("words", [(), ("list",)])
def test_without_rich_the_plain_screen_is_shown_on_a_terminal(
    directory: Path, tmp_path: Path, words: tuple[str, ...]
) -> None:
    without = tmp_path / "without"
    (without / "rich").mkdir(parents=True)
    (without / "rich" / "__init__.py").write_text("raise ImportError('not installed')")
    (without / "shtab.py").write_text("raise ImportError('not installed')")
    path = f"{without}{os.pathsep}{environment()['PYTHONPATH']}"

    ended = on_terminal(*words[:1], directory, *words[1:], PYTHONPATH=path)
    completion = checkpoint_verify("--print-completion", "bash", PYTHONPATH=path)

    assert ended.code == 0
    assert not ended.colours
    assert "claim-1" in ended.out or "GOOD: 4 checkpoints" in ended.out
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


def test_help_and_version_of_the_whole() -> None:
    assert checkpoint_verify("--help").code == 0
    assert checkpoint_verify("--version").out.startswith("checkpoint-verify ")


@pytest.mark.parametrize("shell", ["bash", "zsh", "tcsh"])
def test_completion_is_printed_for_each_shell(shell: str) -> None:
    ended = called("--print-completion", shell)

    assert ended.code == 0
    assert "diagnose" in ended.out


def test_a_path_named_like_a_subcommand_is_given_with_a_dot(tmp_path: Path) -> None:
    make(tmp_path / "list")

    assert checkpoint_verify("./list", cwd=tmp_path).lines[0] == "GOOD: 4 checkpoints in ./list"
    assert checkpoint_verify("list", "list", cwd=tmp_path).lines[-1] == "4 checkpoints"
