"""quarantine: what was kept can be listed, looked at and deleted; and nothing else is touched."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from checkpointmanager import CheckpointManager
from checkpointmanager.testing import damage
from draState import CLAIMS

from .claims import make_claims, uid
from .command import called
from .state import snapshot


@pytest.fixture
def kept(tmp_path: Path) -> Path:
    """Three claims: the first was discarded, the second repaired; the bytes of both are in quarantine."""
    claims = make_claims(tmp_path / "claims")
    damage.truncate(claims, uid(0), 380)
    damage.flip_bit(claims, uid(1), 800)
    assert called("repair", "--all", "--discard", "--yes", claims).code == 0
    return claims


def names(claims: Path) -> list[str]:
    return sorted(os.listdir(claims / ".quarantine"))


def test_list_names_each_copy_whose_it_is_and_what_became_of_its_key(kept: Path) -> None:
    ended = called("quarantine", "list", kept)
    listed = called("quarantine", "list", "--json", kept).document

    assert ended.code == 0
    assert [line.split()[0] for line in ended.lines[1:3]] == names(kept)
    assert [line.split()[1] for line in ended.lines[1:3]] == ["ml/train-0", "ml/train-1"]
    assert [line.split()[-1] for line in ended.lines[1:3]] == ["gone", "good"]
    assert [(row["key"], row["reason"], row["now"]) for row in listed["copies"]] == [
        (uid(0), "truncated", "gone"),
        (uid(1), "checksum-mismatch", "good"),
    ]
    assert called("quarantine", "list", kept / "nowhere").code == 3


def test_show_shows_a_copy(kept: Path) -> None:
    ended = called("show", "--json", kept / ".quarantine" / names(kept)[0])

    assert (ended.code, ended.document["key"], ended.document["state"]) == (1, uid(0), "damaged")


def test_purge_all_leaves_the_last_copy_of_what_is_damaged_or_gone(kept: Path) -> None:
    copy = kept / ".quarantine" / names(kept)[0]
    shutil.copy(copy, str(copy).replace(".20", ".19"))  # an older copy of the same key
    newest = [name for name in names(kept) if name.startswith(uid(0))][-1]

    ended = called("quarantine", "purge", "--all", kept, "--yes")

    assert ended.code == 0
    assert ended.lines[0] == "DONE: 2 deleted"
    assert "its key is damaged or gone" in ended.out
    assert names(kept) == [newest]
    assert called("quarantine", "purge", "--all", kept, "--yes").lines[0] == "GOOD: nothing to do"
    assert called("quarantine", "purge", "--yes", "-d", kept, newest).code == 0
    assert names(kept) == []


def test_purge_deletes_nothing_that_the_library_has_not_named(kept: Path) -> None:
    (kept / ".quarantine" / "notes.txt").write_text("mine")

    called("quarantine", "purge", "--all", kept, "--yes")

    assert "notes.txt" in names(kept)
    assert called("quarantine", "purge", "--yes", kept / ".quarantine" / "notes.txt").code == 2
    assert called("quarantine", "purge", "--yes", kept / f"{uid(1)}.json").code == 2


def test_purge_needs_the_lock_and_a_user_s_consent(kept: Path) -> None:
    filled = ["purge", "--all", kept]
    before = snapshot(kept)

    assert called("quarantine", *filled).code == 2  # no user can answer in a pipe
    declined = called("quarantine", *filled, typed="n\n")
    assert (declined.code, declined.lines[-1]) == (3, "Delete 1 file for good? [y/N] Nothing was changed.")
    assert snapshot(kept) == before
    with CheckpointManager(kept, CLAIMS, owner="the agent"):
        before = snapshot(kept)
        held = called("quarantine", *filled, "--yes")
        assert held.code == 3
        assert held.out.startswith("NOTHING DONE: the lock is held by 'the agent'")
        assert snapshot(kept) == before
    assert called("quarantine", *filled, "--yes").code in (0, 1)


@pytest.mark.parametrize("verb", ["list", "purge"])
def test_the_help_of_each_has_an_example(verb: str) -> None:
    ended = called("quarantine", verb, "--help")

    assert ended.code == 0
    assert f"  checkpoint-verify quarantine {verb} " in ended.out


def test_purge_and_repair_take_all_yes_and_a_directory_alike(kept: Path) -> None:
    before = len(names(kept))

    for command in (["repair"], ["quarantine", "purge"]):
        for words in (["--all", "--yes", kept], [kept, "--all", "--yes"], ["--yes", "--all", "-d", kept]):
            assert called(*command, *words).code in (0, 1), (command, words)

    assert len(names(kept)) < before
    assert called("quarantine", "purge", "--all", "--yes", kept, kept).code == 2
