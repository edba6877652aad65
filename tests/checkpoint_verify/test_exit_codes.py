"""Scripts branch on the exit codes."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from unittest import mock

import pytest

from checkpoint_verify.commands import verify
from checkpointmanager.testing import damage

from .command import LIMIT, NOBODY, arguments, called, checkpoint_verify, environment
from .state import snapshot


@pytest.mark.parametrize(
    "words",
    [
        ("list", "{d}"),
        ("show", "-d", "{d}", "claim-1"),
        ("diagnose", "-d", "{d}", "claim-1"),
        ("diff", "-d", "{d}", "claim-1", "claim-2"),
        ("repair", "--dry-run", "--all", "{d}"),
    ],
    ids=lambda words: words[0],
)
def test_every_subcommand_ends_with_0_for_good_and_1_for_damage(directory: Path, words: tuple[str, ...]) -> None:
    filled = [word.format(d=directory) for word in words]

    assert called(*filled).code == 0
    damage.edit_by_hand(directory, "claim-1")
    assert called(*filled).code == 1


@pytest.mark.parametrize(
    "words",
    [
        (),
        ("--nonsense", "."),
        ("--kubelet-version", "9.9", "."),
        ("show",),
        ("show", "a", "b"),
        ("diff", "a"),
        ("repair",),
        ("bundle", "."),
        ("restore", "a"),
        ("remove",),
        ("list", "--sort", "colour", "."),
        ("--print-completion", "teletype"),
    ],
)
def test_usage_errors_end_with_2(words: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)

    ended = called(*words)

    assert ended.code == 2
    assert ended.err


@pytest.mark.parametrize("command", ["verify", "list", "show", "diagnose"])
def test_a_missing_path_ends_with_3(command: str) -> None:
    assert called(command, "/nonexistent/claims").code == 3


def test_damage_wins_over_a_file_that_may_not_be_read(reachable_directory: Path) -> None:
    directory = reachable_directory
    directory.chmod(0o755)
    for path in directory.iterdir():
        path.chmod(0o644)
    (directory / "claim-1.json").chmod(0)

    assert called(directory, user=NOBODY).code == 3
    damage.flip_bit(directory, "claim-2")
    ended = called(directory, user=NOBODY)

    assert ended.code == 1
    assert "DAMAGED: 1 of 4 checkpoints, 1 not checked" in ended.lines[0]


@pytest.mark.parametrize(
    ("words", "is_damaged"), [(("list", "--json"), False), ((), True), (("repair", "--dry-run", "--all"), True)]
)
def test_a_broken_pipe_ends_with_3_without_a_traceback_and_does_not_hide_damage(
    directory: Path, words: tuple[str, ...], is_damaged: bool
) -> None:
    if is_damaged:
        damage.edit_by_hand(directory, "claim-1")
    with subprocess.Popen(
        arguments(*words, directory), stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment()
    ) as process:
        assert process.stdout
        process.stdout.close()
        assert process.stderr
        said = process.stderr.read()
        assert process.wait(LIMIT) == (1 if is_damaged else 3)
    assert said == b""


def test_a_full_disk_under_the_output_ends_with_3(directory: Path) -> None:
    with open("/dev/full", "w") as full:
        process = subprocess.run(
            arguments(directory), stdout=full, stderr=subprocess.PIPE, env=environment(), check=False, timeout=LIMIT
        )
    assert process.returncode == 3


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (RuntimeError("a bug"), "internal error: RuntimeError: a bug"),
        (KeyboardInterrupt(), "interrupted; what was not checked yet is unknown"),
    ],
)
def test_an_error_of_our_own_or_ctrl_c_ends_with_3_and_one_line(
    directory: Path, monkeypatch: pytest.MonkeyPatch, error: BaseException, line: str
) -> None:
    monkeypatch.setattr(verify, "summary_of", mock.Mock(side_effect=error))

    ended = called(directory)

    assert (ended.code, ended.err) == (3, f"checkpoint-verify: {line}\n")


def test_a_broken_installation_does_not_look_like_damage(tmp_path: Path, directory: Path) -> None:
    (tmp_path / "orjson.py").write_text("raise ImportError('broken')")

    ended = checkpoint_verify(directory, PYTHONPATH=f"{tmp_path}{os.pathsep}{environment()['PYTHONPATH']}")

    assert ended.code == 3
    assert "broken" in ended.err
    assert "Traceback" not in ended.err


def test_closed_output_ends_with_3_and_no_file_gets_what_was_meant_for_it(directory: Path) -> None:
    damage.edit_by_hand(directory, "claim-1")
    before = snapshot(directory)
    line = shlex.join([os.fsdecode(word) for word in arguments("repair", "--yes", "--all", directory)])

    process = subprocess.run(
        ["/bin/sh", "-c", f"{line} >&-"], stderr=subprocess.PIPE, env=environment(), check=False, timeout=LIMIT
    )

    assert process.returncode == 3
    assert process.stderr == b"checkpoint-verify: standard output is closed; use --quiet, which writes nothing\n"
    assert snapshot(directory) == before


@pytest.mark.parametrize("words", [("list",), ("repair", "--all", "--yes")])
def test_every_subcommand_says_why_a_directory_cannot_be_read(
    reachable_directory: Path, words: tuple[str, ...]
) -> None:
    reachable_directory.chmod(0o700)

    ended = called(*words, reachable_directory, user=NOBODY)
    verified = called(reachable_directory, user=NOBODY)

    assert ended.code == verified.code == 3
    assert ended.err == f"checkpoint-verify: {reachable_directory}: Permission denied\n"
    assert "unreadable" not in ended.out
    assert verified.lines[0].startswith("COULD NOT LOOK: ")
    assert len(verified.lines) == 2
    assert "Permission denied" in verified.out
    assert "run this as root" in verified.out


def test_no_file_is_opened_under_the_number_of_a_closed_stream(tmp_path: Path) -> None:
    program = (
        "import os, sys; from checkpoint_verify import cli; cli.main(['--version'])\n"
        f"open({str(tmp_path / 'seen')!r}, 'w').write(' '.join(os.readlink(f'/proc/self/fd/{{n}}') for n in range(3)))"
    )
    command = shlex.join([sys.executable, "-c", program])

    subprocess.run(["/bin/sh", "-c", f"{command} <&- >&- 2>&-"], env=environment(), check=True, timeout=LIMIT)

    assert (tmp_path / "seen").read_text() == "/dev/null /dev/null /dev/null"


@pytest.mark.parametrize("words", [["help"], ["help", "repair"], ["help", "quarantine", "purge"]], ids=" ".join)
def test_help_explains_a_command(words: list[str]) -> None:
    explained = called(*words)

    assert explained.code == 0
    assert explained.out == called(*words[1:], "--help").out


def test_a_bundle_a_newer_file_a_missing_and_an_unreadable_one_each_have_their_own_first_line(
    directory: Path, tmp_path: Path
) -> None:
    (tmp_path / "bundle.json").write_text('{"a": 1}')
    newer = tmp_path / "newer.json"
    newer.write_bytes(b'{"checksum":"blake3:' + b"ab" * 32 + b'","format":3}\n')
    (tmp_path / "loop").symlink_to("loop")

    first = {
        path.name: called(path).lines[0]
        for path in (
            tmp_path / "bundle.json",
            newer,
            tmp_path / "nowhere",
            tmp_path / "nowhere" / "x",
            tmp_path / "loop",
        )
    }
    words = {name: line.partition(":")[0] for name, line in first.items()}

    assert words == {
        "bundle.json": "NOT A CHECKPOINT",
        "newer.json": "TOO NEW",
        "nowhere": "NO SUCH PATH",
        "x": "NO SUCH PATH",
        "loop": "DAMAGED",
    }
    shutil.copy(newer, directory / "claim-1.json")
    assert called(directory).lines[0].startswith("TOO NEW: 1 of 4 checkpoints in ")
    shutil.copy(tmp_path / "bundle.json", directory / "claim-1.json")
    assert called(directory).lines[0].startswith("NOT A CHECKPOINT: 1 of 4 checkpoints")
    assert called("diagnose", directory / "claim-1.json").lines[0].startswith("NOT A CHECKPOINT ")
    damage.edit_by_hand(directory, "claim-2")
    assert called(directory).lines[0].startswith("DAMAGED: 2 of 4 checkpoints")


def test_a_file_without_the_right_to_read_it_says_so_in_its_first_line(reachable_directory: Path) -> None:
    reachable_directory.chmod(0o755)

    ended = called(reachable_directory / "claim-1.json", user=NOBODY)

    assert (ended.code, ended.lines[0].rpartition(": ")[2]) == (3, "Permission denied")
    assert ended.lines[0].startswith("COULD NOT LOOK: ")
