"""repair: exact by default, atomic, with the damaged bytes kept; more only when asked for."""

from __future__ import annotations

import errno
import itertools
import os
import shlex
import stat
from pathlib import Path

import pytest

from checkpoint_verify.commands import repair as repairs
from checkpoint_verify.commands.steps import Step, read_back
from checkpointmanager import CheckpointManager
from checkpointmanager.testing import damage, failing

from .command import NOBODY, called, on_terminal
from .state import CLAIMS, claim, make, reseal, snapshot


def kept(directory: Path) -> list[bytes]:
    return [path.read_bytes() for path in sorted((directory / ".quarantine").iterdir())]


def test_a_flipped_bit_is_turned_back_exactly_and_the_damaged_bytes_are_kept(directory: Path) -> None:
    path = directory / "claim-1.json"
    good = path.read_bytes()
    damage.flip_bit(directory, "claim-1", -160)
    damaged = path.read_bytes()

    ended = called("repair", "--yes", path)

    assert ended.code == 0
    assert path.read_bytes() == good
    assert kept(directory) == [damaged]
    assert "DONE: 1 repaired" in ended.out
    assert "bit 0 of byte" in ended.out
    assert ".quarantine/claim-1." in ended.out


def test_without_rollback_what_cannot_be_repaired_exactly_is_left_alone(directory: Path) -> None:
    damage.edit_by_hand(directory, "claim-0")
    before = snapshot(directory)

    ended = called("repair", "--yes", "-d", directory, "claim-0")

    assert ended.code == 1
    assert "with --rollback generation 1" in ended.out
    assert snapshot(directory) == before


def test_rollback_brings_the_previous_generation_and_says_what_is_lost(directory: Path) -> None:
    damage.edit_by_hand(directory, "claim-0")

    ended = called("repair", "--rollback", "--yes", "-d", directory, "claim-0")

    assert ended.code == 0
    assert "what was written after it is lost" in ended.out
    with CheckpointManager(directory, CLAIMS) as manager:
        checkpoint = manager.get_checkpoint("claim-0")
    assert (checkpoint.data, checkpoint.generation) == (claim(0), 3)
    assert len(kept(directory)) == 1


def test_discard_removes_only_what_is_beyond_repair_and_keeps_its_bytes(directory: Path) -> None:
    for key in ("claim-0", "claim-1"):
        damage.truncate(directory, key, 60)
    hopeless = (directory / "claim-1.json").read_bytes()

    ended = called("repair", "--all", "--discard", "--yes", directory)

    assert ended.code == 1  # claim-0 has a previous generation, so it is not beyond repair
    assert (directory / "claim-0.json").exists()
    assert not (directory / "claim-1.json").exists()
    assert kept(directory) == [hopeless]
    assert "DONE: 1 discarded, 1 still DAMAGED" in ended.lines[0]


def test_a_dry_run_shows_the_plan_and_changes_nothing(directory: Path) -> None:
    damage.flip_bit(directory, "claim-1")
    (directory / ".tmp-dead-1").write_bytes(b"half")
    before = snapshot(directory)

    ended = called("repair", "--all", "--dry-run", directory)

    assert ended.code == 1
    assert ended.lines[0] == "PLAN: 1 will be repaired; nothing was changed"
    assert snapshot(directory) == before


def test_in_a_pipe_no_user_can_answer_so_yes_is_needed(directory: Path) -> None:
    damage.flip_bit(directory, "claim-1")
    before = snapshot(directory)

    ended = called("repair", "--all", directory)

    assert ended.code == 2
    assert "--yes" in ended.err
    assert snapshot(directory) == before


@pytest.mark.parametrize(("typed", "code"), [("y\n", 0), ("n\n", 1), ("\n", 1)])
def test_on_a_terminal_it_asks_and_obeys_the_answer(directory: Path, typed: str, code: int) -> None:
    path = directory / "claim-1.json"
    damage.flip_bit(directory, "claim-1")
    damaged = path.read_bytes()

    ended = called("repair", "--all", directory, typed=typed)

    assert ended.code == code
    assert "Change 1 file?" in ended.out
    assert (path.read_bytes() == damaged) is (code == 1)


def test_nothing_to_repair_is_good(directory: Path) -> None:
    assert called("repair", "--all", directory).out == "GOOD: nothing to do\n"
    assert called("repair", directory / "claim-1.json").code == 0


def test_a_missing_directory_is_not_made(tmp_path: Path) -> None:
    assert called("repair", "--all", "--yes", tmp_path / "nowhere").code == 3
    assert called("repair", "--yes", tmp_path / "nowhere" / "claim-1.json").code == 3
    assert not (tmp_path / "nowhere").exists()


def test_kubelet_s_files_are_never_touched(tmp_path: Path) -> None:
    (tmp_path / "cpu_manager_state").write_bytes(b"half")

    for words in (("--all", tmp_path), (tmp_path / "cpu_manager_state",)):
        ended = called("repair", "--yes", "--discard", "--rollback", *words)
        assert ended.code == 1
        assert "kubelet's own file" in ended.out
    assert os.listdir(tmp_path) == ["cpu_manager_state"]


def test_what_is_not_verified_and_what_is_too_new_is_left_and_no_damage(directory: Path, tmp_path: Path) -> None:
    (tmp_path / "dra_health_state").write_text("{}")
    reseal(directory / "claim-1.json", b'"format":1', b'"format":2')

    unverified = called("repair", "--yes", tmp_path / "dra_health_state")
    newer = called("repair", "--yes", "--discard", directory / "claim-1.json")

    assert (unverified.code, newer.code) == (0, 0)
    assert "not verified, but not known to be damaged" in unverified.out
    assert "a newer program wrote it" in newer.out


def test_root_repairs_as_the_agent_would(agents_directory: Path) -> None:
    directory = agents_directory
    (directory / ".lock").unlink()  # so that the repair makes a new one
    (directory / "claim-1.json").chmod(0o644)
    damage.flip_bit(directory, "claim-1")
    damage.edit_by_hand(directory, "claim-0")
    before = (os.getresuid(), os.getresgid(), os.getgroups())

    ended = called("repair", "--all", "--rollback", "--yes", directory)

    assert (os.getresuid(), os.getresgid(), os.getgroups()) == before
    assert ended.code == 0, ended
    assert ended.lines[0] == "DONE: 1 repaired, 1 rolled back"
    quarantine = directory / ".quarantine"
    for path in (*directory.iterdir(), *quarantine.iterdir()):
        assert (path.stat().st_uid, path.stat().st_gid) == (NOBODY, NOBODY), path
    for key in ("claim-0", "claim-1"):
        assert stat.S_IMODE((directory / f"{key}.json").stat().st_mode) == 0o600
    # The agent itself, which is not root, finds everything usable: it locks, keeps damaged bytes and repairs.
    damage.flip_bit(directory, "claim-3")
    ended = called("repair", "--all", "--yes", directory, user=NOBODY)
    assert ended.code == 0, ended


def test_in_a_directory_of_root_the_lock_file_shows_the_agent_s_user(reachable_directory: Path) -> None:
    directory = reachable_directory  # as Kubernetes makes a volume with an fsGroup
    directory.chmod(0o2777)
    for path in directory.iterdir():
        os.chown(path, NOBODY, NOBODY)
    os.chown(directory, 0, NOBODY)
    damage.flip_bit(directory, "claim-1")

    assert called("repair", "--all", "--yes", directory).code == 0

    mended = (directory / "claim-1.json").stat()
    assert (mended.st_uid, mended.st_gid) == (NOBODY, NOBODY)


def test_a_file_that_the_agent_cannot_read_is_left_with_the_command_that_helps(agents_directory: Path) -> None:
    directory = agents_directory
    damage.flip_bit(directory, "claim-0")
    os.chown(directory / "claim-0.json", 0, 0)  # what a repair by hand as root leaves behind
    before = snapshot(directory)

    ended = called("repair", "--all", "--rollback", "--discard", "--yes", directory)

    assert ended.code == 1
    assert f"user {NOBODY}, who owns the directory, cannot read the file: Permission denied" in ended.out
    assert f"chown {NOBODY}:{NOBODY} {directory / 'claim-0.json'}" in ended.out
    assert snapshot(directory) == before


def test_a_directory_that_the_agent_cannot_reach_from_here_is_reported(agents_directory: Path) -> None:
    directory = agents_directory
    directory.parent.chmod(0o700)  # root's, as kubelet's folder of pods is
    damage.flip_bit(directory, "claim-1")
    before = snapshot(directory)

    ended = called("repair", "--all", "--yes", directory)

    assert ended.code == 1
    assert "Permission denied" in ended.out
    assert f"(tried as user {NOBODY}, who owns the directory)" in ended.out
    assert snapshot(directory) == before


def test_without_the_right_to_the_directory_nothing_is_changed(reachable_directory: Path) -> None:
    directory = reachable_directory
    directory.chmod(0o755)
    for path in directory.iterdir():
        path.chmod(0o644)
    damage.flip_bit(directory, "claim-1")
    before = snapshot(directory)

    ended = called("repair", "--all", "--yes", directory, user=NOBODY)

    assert ended.code == 1  # the damage is still there, which wins over "could not"
    assert "Permission denied" in ended.out
    assert snapshot(directory) == before


def test_the_json_document_of_a_repair(directory: Path) -> None:
    damage.flip_bit(directory, "claim-1")

    document = called("repair", "--all", "--yes", "--json", directory).document

    assert document["dry_run"] is False
    assert [(step["key"], step["action"]) for step in document["steps"]] == [("claim-1", "repaired")]
    assert document["steps"][0]["quarantined"].startswith(str(directory / ".quarantine"))


@pytest.mark.parametrize("words", [("--yes", "--rollback", "--discard"), ()])
def test_while_the_lock_is_held_one_line_names_the_holder_and_nothing_is_asked(
    directory: Path, words: tuple[str, ...]
) -> None:
    for key in ("claim-1", "claim-2", "claim-3"):
        damage.flip_bit(directory, key)
    with CheckpointManager(directory, CLAIMS, owner="the agent"):
        before = snapshot(directory)
        ended = called("repair", "--all", directory, *words)
        document = called("repair", "--all", "--yes", "--json", directory).document
        planned = called("repair", "--all", "--dry-run", directory)
        after = snapshot(directory)

    assert "Stop the agent first: the lock is held by 'the agent'" in planned.out
    assert ended.code == document["exit_code"] == 1
    [line] = ended.lines
    assert line.startswith(f"NOTHING DONE: the lock is held by 'the agent', pid {os.getpid()} on ")
    assert line.endswith("stop that process first, then try again")
    assert "'the agent'" in document["blocked"]
    assert after == before


def test_ctrl_c_at_the_prompt_changes_nothing_and_says_so(directory: Path) -> None:
    damage.flip_bit(directory, "claim-1")
    before = snapshot(directory)

    ended = on_terminal("repair", "--all", directory, typed=b"\x03")

    assert ended.code == 3
    assert ended.lines[-1] == "Nothing was changed."
    assert snapshot(directory) == before


def test_nothing_is_said_to_be_kept_before_it_is(directory: Path) -> None:
    damage.truncate(directory, "claim-1", 60)
    quarantine = directory / ".quarantine"
    quarantine.write_text("in the way")

    planned = called("repair", "--dry-run", "--discard", "--all", directory)
    failed = called("repair", "--yes", "--discard", "--all", directory)

    assert (planned.code, failed.code) == (1, 1)
    assert "kept" not in planned.out + failed.out
    assert failed.lines[0] == "DONE: 1 still DAMAGED"
    quarantine.unlink()
    assert "the former bytes are kept in" in called("repair", "--yes", "--discard", "--all", directory).out


def hurt_many(directory: Path, count: int) -> Path:
    """A flipped bit in each, but the last twelve are cut off; the first six of those have a previous generation."""
    make(directory, count)
    with CheckpointManager(directory, CLAIMS, durability="atomic") as manager:
        for number in range(count - 12, count - 6):
            manager.create_checkpoint(f"claim-{number}", {"written": "again"})
    for number in range(count - 12):
        damage.flip_bit(directory, f"claim-{number}", 100 * 8)
    for number in range(count - 12, count):
        damage.truncate(directory, f"claim-{number}", 60)
    return directory


def test_a_plan_for_many_files_is_grouped_says_what_remains_and_what_to_run_next(tmp_path: Path) -> None:
    directory = hurt_many(tmp_path / "claims", 32)

    planned = called("repair", "--dry-run", "--all", directory)
    done = called("repair", "--yes", "--all", directory)
    again = called(*shlex.split(done.lines[-1])[2:])

    assert planned.lines[0] == "PLAN: 20 will be repaired, 12 will still be DAMAGED; nothing was changed"
    assert [line.partition(":")[0] for line in planned.lines if not line.startswith(" ")] == [
        "PLAN",
        "will be repaired",
        "will still be damaged",
        "will still be damaged",
        f"next  checkpoint-verify repair --all {directory}",
    ]
    assert "such as claim-0, claim-1, claim-10" in planned.out
    assert "will be set back" in planned.out
    assert done.lines[0] == "DONE: 20 repaired, 12 still DAMAGED"
    assert done.lines[-1] == f"next  checkpoint-verify repair --all --dry-run --rollback --discard {directory}"
    assert again.lines[0] == "PLAN: 6 will be discarded, 6 will be rolled back; nothing was changed"
    assert len(called("repair", "--dry-run", "--all", "--json", directory).document["steps"]) == 12


def test_an_interrupted_repair_says_what_was_done_and_what_not(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(4):
        damage.flip_bit(directory, f"claim-{number}")
    calls = itertools.count(1)

    def interrupted(step: Step) -> None:
        if next(calls) == 3:
            raise KeyboardInterrupt
        read_back(step)

    monkeypatch.setattr(repairs, "read_back", interrupted)
    ended = called("repair", "--all", "--yes", "--json", directory)

    document = ended.document
    assert (ended.code, document["exit_code"], document["interrupted"]) == (1, 1, True)
    assert {step["key"]: step["action"] for step in document["steps"]} == {
        "claim-0": "repaired", "claim-1": "repaired", "claim-2": "repaired", "claim-3": "left",
    }  # fmt: skip
    assert called("list", "--json", "--state", "damaged", directory).document["checkpoints"][0]["key"] == "claim-3"
    calls = itertools.count(3)
    for number in range(3):
        damage.flip_bit(directory, f"claim-{number}")
    again = called("repair", "--all", "--yes", directory)
    assert again.lines[0] == "INTERRUPTED: 1 repaired, 3 still DAMAGED"
    assert again.lines[-1] == f"next  checkpoint-verify repair --all {directory}"


def test_a_full_disk_is_named_in_the_first_line(directory: Path) -> None:
    damage.flip_bit(directory, "claim-1")

    with failing(directory, "write", errno.ENOSPC, lasting=True):
        ended = called("repair", "--all", "--yes", directory)

    assert (ended.code, ended.lines[0]) == (1, "DONE: 1 still DAMAGED; the disk is full")
