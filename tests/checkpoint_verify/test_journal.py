"""A journal that waits: every command shows what the next owner will see, and repair can finish it."""

from __future__ import annotations

import errno
import json
import os
import re
import shutil
from pathlib import Path

import pytest

from checkpointmanager import CheckpointManager
from checkpointmanager.format import MAX_JOURNAL_BYTES, Change, checksum_of, seal_removal
from checkpointmanager.testing import failing

from .command import called
from .state import CLAIMS, crashed, make, snapshot


@pytest.fixture
def waiting(tmp_path: Path) -> Path:
    return crashed(tmp_path / "claims")


def served(directory: Path) -> dict[str, object]:
    """What an owner serves, which is then closed."""
    with CheckpointManager(directory, CLAIMS) as manager:
        return {key: one.data for key, one in manager.load().checkpoints.items()}


def test_verify_reports_it_in_one_line_and_gives_the_verdict_of_the_next_owner(waiting: Path) -> None:
    os.truncate(waiting / "claim-1.json", 40)  # torn by the power loss
    before = snapshot(waiting)

    ended = called(waiting)
    document = called("--json", waiting).document

    assert ended.code == 0
    assert ended.lines[0].startswith("GOOD, with 1 warning: 4 checkpoints")
    [line] = [line for line in ended.lines if line.startswith("warning:")]
    assert re.search(r"3 changes of 3 keys \(claim-1, claim-2, ns%2Fnew\), since 20\d\d-", line)
    assert f"repair --all {waiting}" in line
    journal = document["paths"][0]["journal"]
    assert (journal["changes"], journal["keys"], journal["damaged"]) == (3, ["claim-1", "claim-2", "ns%2Fnew"], 0)
    assert snapshot(waiting) == before


def test_list_show_diff_and_diagnose_show_what_the_next_owner_serves(waiting: Path, tmp_path: Path) -> None:
    rows = {row["key"]: row for row in called("list", "--json", waiting).document["checkpoints"]}
    shown = {name: called("show", "--json", "-d", waiting, name) for name in rows}
    raw = called("show", "--raw", "-d", waiting, "claim-1").out
    gone = called("show", "-d", waiting, "claim-2")
    diff = called("diff", "--json", "--previous", "-d", waiting, "claim-1").document
    why = called("diagnose", "-d", waiting, "claim-1")

    after = served(shutil.copytree(waiting, tmp_path / "next"))

    assert {row["state"] for row in rows.values()} == {"good"}
    assert [rows[name]["generation"] for name in ("claim-1", "ns%2Fnew")] == [2, 1]
    assert {ended.document["header"]["key"]: ended.document["data"] for ended in shown.values()} == {
        key.replace("/", "%2F"): data for key, data in after.items()
    }
    assert json.loads(raw)["data"] == after["claim-1"]
    assert gone.code == 3
    assert [change["path"] for change in diff["changes"] if change["path"].startswith("$.data")] == ["$.data.pods[0]"]
    assert "the newest change is in the journal" in why.out


def test_a_file_that_stands_for_a_removed_checkpoint_is_no_checkpoint(directory: Path) -> None:
    (directory / "claim-1.json").write_bytes(seal_removal(Change("claim-1", 2, None)))

    assert called("--strict", directory).lines[0].startswith("GOOD: 3 checkpoints in ")
    assert called(directory / "claim-1.json").lines[0].startswith("NO SUCH PATH: ")


def test_a_live_owner_makes_the_names_right(tmp_path: Path) -> None:
    directory = make(tmp_path / "claims")
    with CheckpointManager(directory, CLAIMS) as manager:
        manager.create_checkpoint("claim-1", {"new": True})

        ended = called("--json", "--strict", directory)

        assert (directory / ".journal").exists()
    assert (ended.code, ended.document["paths"][0]["journal"]) == (0, None)


def test_a_damaged_record_is_a_warning_and_a_torn_tail_is_not(waiting: Path) -> None:
    blob = (waiting / ".journal").read_bytes()
    starts = [found.start() for found in re.finditer(rb'"record":', blob)]

    (waiting / ".journal").write_bytes(blob[: starts[-1] + 20] + b"\n" * (len(blob) - starts[-1] - 20))
    torn = called("--json", waiting).document
    (waiting / ".journal").write_bytes(blob[: starts[0] + 2] + b"X" + blob[starts[0] + 3 :])
    rotten = called("--json", waiting).document

    assert [problem["reason"] for problem in torn["problems"]] == ["journal"]
    assert torn["paths"][0]["journal"]["keys"] == ["claim-1", "claim-2"]
    assert sorted(problem["reason"] for problem in rotten["problems"]) == ["journal", "journal-damaged"]
    assert "1 damaged record" in next(p["detail"] for p in rotten["problems"] if p["reason"] == "journal-damaged")


def test_a_journal_of_another_program_is_not_mentioned(directory: Path) -> None:
    (directory / ".journal").write_bytes(b"\xc0\x3b\x39\x98" * 1024)
    assert "1 damaged record" in called(directory).out
    (directory / ".lock").unlink()

    assert called("--strict", directory).code == 0


@pytest.mark.parametrize("number", [errno.EIO, errno.EACCES])
def test_without_the_journal_nothing_is_judged(waiting: Path, number: int) -> None:
    journal = waiting / ".journal"
    with failing(waiting, "open", number, about=".journal", lasting=True):
        broken = [called(*words, waiting) for words in ((), ("list",), ("repair", "--dry-run", "--all"))]
    os.truncate(journal, MAX_JOURNAL_BYTES + 1)
    large = called(waiting)
    journal.write_bytes(b'{"checksum":"xxh3:0123456789abcdef","format":2,"journal":"2030-01-01T00:00:00.000000Z"}\n')
    unsealed = called(waiting)
    body = b'"format":2,"journal":"2030-01-01T00:00:00.000000Z"}\n'
    journal.write_bytes(checksum_of(body) + body)
    newer = called(waiting)

    for ended in broken:
        assert ended.code == 3, ended.out
        assert "claim-1" not in ended.out
    assert broken[0].lines[0].startswith("COULD NOT LOOK")
    assert "nothing is known about any checkpoint" in broken[0].out
    assert large.code == newer.code == 3
    assert "over the limit" in large.out
    assert "run the newer version of the agent" in newer.out
    assert unsealed.code == 0  # not whole, so not a journal of a newer program: only its own line is lost


def test_an_unreadable_file_costs_its_key_only(waiting: Path) -> None:
    with failing(waiting, "open", errno.EIO, about="claim-1.json", lasting=True):
        document = called("--json", waiting).document

    assert document["paths"][0]["states"]["unreadable"] == 1
    assert document["paths"][0]["states"]["good"] == 3
    assert [p["key"] for p in document["problems"] if p["severity"] == "could-not-look"] == ["claim-1"]


def test_repair_finishes_the_journal_as_its_owner_would(waiting: Path, tmp_path: Path) -> None:
    expected = served(shutil.copytree(waiting, tmp_path / "next"))
    plan = called("repair", "--dry-run", "--all", waiting)
    assert (waiting / ".journal").exists()

    ended = called("repair", "--all", "--yes", waiting)

    assert plan.lines[0].startswith("PLAN: 1 will be finished")
    assert (ended.code, ended.lines[0]) == (0, "DONE: 1 finished")
    assert not (waiting / ".journal").exists()
    assert served(waiting) == expected
    assert called("--strict", waiting).code == 0


def test_drop_takes_back_what_the_journal_alone_has(waiting: Path) -> None:
    assert called("repair", "--drop", "--yes", "-d", waiting, "claim-3").lines[0] == "GOOD: nothing to do"
    assert (waiting / ".journal").exists()
    plan = called("repair", "--drop", "--dry-run", "-d", waiting, "claim-1")
    assert "generation 2 waits in the journal; without it generation 1 comes back" in plan.out
    before = json.loads((waiting / "claim-1.json").read_bytes())["data"]

    ended = called("repair", "--drop", "--yes", "-d", waiting, "claim-1", "claim-2", "ns%2Fnew")

    assert (ended.code, ended.lines[0]) == (0, "DONE: 3 dropped")
    with CheckpointManager(waiting, CLAIMS) as manager:
        loaded = manager.load().checkpoints
        assert sorted(loaded) == ["claim-0", "claim-1", "claim-2", "claim-3"]
        assert (loaded["claim-1"].data, loaded["claim-1"].generation) == (before, 3)
    kept = [json.loads(path.read_bytes())["key"] for path in sorted((waiting / ".quarantine").iterdir())]
    assert kept == ["claim-1", "ns/new"]  # claim-2 was gone, so there was nothing to keep


def test_drop_refuses_a_torn_file_and_a_live_owner(waiting: Path) -> None:
    os.truncate(waiting / "claim-1.json", 40)
    torn = called("repair", "--drop", "--yes", "-d", waiting, "claim-1")
    with CheckpointManager(waiting, CLAIMS, owner="the agent"):
        held = called("repair", "--drop", "--yes", "-d", waiting, "ns%2Fnew")
        finishing = called("repair", "--all", "--yes", waiting)

    assert torn.code == 3
    assert "cannot be used" in torn.out
    assert held.lines[0] == finishing.lines[0] == "GOOD: nothing to do"  # the owner has put everything in place
