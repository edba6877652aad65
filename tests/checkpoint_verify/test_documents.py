"""What programs read: the JSON documents and the metrics. Their shape is a promise, so it is written down here."""

from __future__ import annotations

import os
import re
import stat
from pathlib import Path
from typing import Any

import pytest

from checkpoint_verify.screens.prometheus import replaced
from checkpointmanager.testing import damage

from .command import called

PREAMBLE = {"schema", "tool", "command", "time", "exit_code"}
FINDING = {"path", "state", "reason", "detail", "key", "bytes", "waits_in_journal", "header", "kubelet"}
VERIFY: dict[str, Any] = {
    "": PREAMBLE | {"verdict", "summary", "paths", "problems", "searches"},
    "paths": {
        "path", "type", "of_kubelet", "exit_code", "files", "states", "damaged", "kinds", "generations", "boots",
        "bytes", "previous", "temp_files", "quarantined", "foreign", "lock", "journal", "kubelet",
    },
    "problems": {"path", "severity", "key", "reason", "detail", "meaning", "next", "subject"},
}  # fmt: skip


def test_the_document_of_verify_has_these_members_and_no_others(directory: Path) -> None:
    damage.flip_bit(directory, "claim-1")

    document = called("--json", directory).document

    assert document["schema"] == 2
    assert set(document) == VERIFY[""]
    assert set(document["paths"][0]) == VERIFY["paths"]
    assert set(document["problems"][0]) == VERIFY["problems"]
    assert (document["verdict"], document["exit_code"]) == ("damaged", 1)


DIAGNOSIS = {"cause", "certainty", "evidence", "place", "repairable", "remedies", "subject", "unverified_data"}


@pytest.mark.parametrize(
    ("words", "members"),
    [
        (("list",), PREAMBLE | {"checkpoints"}),
        (("show", "claim-1"), PREAMBLE | FINDING | {"data"}),
        (
            ("diagnose", "claim-1"),
            PREAMBLE | FINDING | DIAGNOSIS,
        ),
        (("diff", "claim-1", "claim-2"), PREAMBLE | {"before", "after", "compared", "changes"}),
        (("repair", "claim-1"), PREAMBLE | {"dry_run", "blocked", "interrupted", "steps"}),
        (("bundle",), PREAMBLE | {"path", "redacted", "files", "left_out"}),
    ],
    ids=lambda value: value[0] if isinstance(value, tuple) else "",
)
def test_the_documents_of_the_others(directory: Path, words: tuple[str, ...], members: set[str]) -> None:
    command, *keys = words
    output = [directory.parent / "claims.tar"] if command == "bundle" else []

    document = called(command, "--json", directory, *keys, *output).document

    assert (set(document), document["command"], document["schema"]) == (members, command, 2)


def test_the_verdicts(directory: Path, tmp_path: Path) -> None:
    def verdict(*words: object) -> str:
        return str(called("--json", *words).document["verdict"])

    assert verdict(directory) == "good"
    (directory / ".tmp-dead-1").write_bytes(b"")
    assert verdict(directory) == "warnings"
    assert verdict(tmp_path / "nowhere") == "could-not-look"
    damage.flip_bit(directory, "claim-1")
    assert verdict(directory, tmp_path / "nowhere") == "damaged"


def test_metrics_are_readable_by_all_complete_well_formed_and_without_keys(directory: Path, tmp_path: Path) -> None:
    damage.flip_bit(directory, "claim-1")
    (directory / ".tmp-dead-1").write_bytes(b"")
    target = tmp_path / "metrics.prom"
    before = os.umask(0o077)

    ended = called("--quiet", "--prometheus", target, directory, tmp_path)
    os.umask(before)
    text = target.read_text()

    assert ended.code == 1
    assert stat.S_IMODE(target.stat().st_mode) == 0o644
    assert "claim-1" not in text
    where = f'directory="{directory}"'
    for line in (
        f"checkpointmanager_checkpoints{{{where}}} 4",
        f'checkpointmanager_damaged{{{where},reason="checksum-mismatch"}} 1',
        f'checkpointmanager_damaged{{{where},reason="empty"}} 0',
        f"checkpointmanager_temp_files{{{where}}} 1",
        f"checkpointmanager_quarantined{{{where}}} 0",
        f"checkpointmanager_verify_last_run_result{{{where}}} 1",
    ):
        assert line in text.splitlines()
    assert re.search(r"checkpointmanager_verify_last_run_timestamp_seconds\{[^}]*\} 1\d{9}$", text, re.MULTILINE)
    assert sorted(os.listdir(tmp_path)) == ["claims", "metrics.prom"]
    lines = text.splitlines()
    helped = [line.split()[2] for line in lines if line.startswith("# HELP")]
    typed = [line.split()[2] for line in lines if line.startswith("# TYPE")]
    samples = [line for line in lines if not line.startswith("#")]
    assert helped == typed
    assert len(set(helped)) == len(helped)
    assert all(
        re.fullmatch(r'checkpointmanager_[a-z_]+\{directory="[^"]+"(,reason="[a-z-]+")?\} \d+', s) for s in samples
    )
    assert len(samples) == len(set(samples))


def test_a_path_with_quotes_is_a_proper_label(tmp_path: Path) -> None:
    odd = tmp_path / 'a"b\\c\nd'
    odd.mkdir()

    called("-q", "--prometheus", tmp_path / "m.prom", odd)

    assert 'a\\"b\\\\c\\\\x0ad"' in (tmp_path / "m.prom").read_text()


def test_metrics_that_cannot_be_written_end_with_3_unless_there_is_damage(directory: Path, tmp_path: Path) -> None:
    nowhere = tmp_path / "none" / "m.prom"

    assert called("-q", "--prometheus", nowhere, directory).code == 3
    damage.flip_bit(directory, "claim-1")
    assert called("-q", "--prometheus", nowhere, directory).code == 1


def test_a_reader_never_sees_half_of_the_metrics(tmp_path: Path) -> None:
    target = tmp_path / "m.prom"
    target.write_text("old")

    with replaced(str(target), 0o644) as file:
        file.write("new")
        file.flush()
        assert target.read_text() == "old"

    assert target.read_text() == "new"
    with pytest.raises(OSError, match="full"), replaced(str(target), 0o644):
        raise OSError("full")
    assert os.listdir(tmp_path) == ["m.prom"]
