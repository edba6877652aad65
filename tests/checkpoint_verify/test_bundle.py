"""bundle: the whole directory in one file, which every command reads and restore takes back."""

from __future__ import annotations

import errno
import json
import os
import stat
import tarfile
from pathlib import Path

import pytest

from checkpointmanager import CheckpointManager
from checkpointmanager.testing import damage, failing

from .claims import make_claims
from .command import called
from .state import CLAIMS, crashed, make, snapshot


@pytest.fixture
def evidence(tmp_path: Path) -> Path:
    """A directory with everything: a journal that waits, a damaged file, a copy in quarantine."""
    directory = make(tmp_path / "first")
    damage.flip_bit(directory, "claim-3")
    called("repair", "--all", "--yes", directory)
    kept = directory / ".quarantine"
    claims = crashed(tmp_path / "claims")
    kept.rename(claims / ".quarantine")
    damage.edit_by_hand(claims, "claim-0")
    return claims


def members(bundle: Path) -> dict[str, bytes]:
    with tarfile.open(bundle) as tar:
        return {one.name: file.read() for one in tar if (file := tar.extractfile(one))}


def test_it_holds_every_file_of_the_directory_and_says_so(evidence: Path, tmp_path: Path) -> None:
    bundle = tmp_path / "claims.tar"
    before = snapshot(evidence)

    ended = called("bundle", evidence, bundle)

    assert ended.code == 0
    assert ended.lines[0].startswith(
        f"BUNDLED: 4 checkpoints, 1 previous generation, 1 copy in quarantine, 1 journal, 1 lock file in {bundle}"
    )
    assert "DAMAGED: 1 of 4 checkpoints" in ended.lines[1]
    held = members(bundle)
    manifest = json.loads(held.pop("manifest.json"))
    assert held == {f"files/{name}": blob for name, (blob, _, _) in before.items()}
    assert manifest["verdict"] == "damaged"
    assert snapshot(evidence) == before
    assert stat.S_IMODE(bundle.stat().st_mode) == 0o600


def test_it_is_never_overwritten_nor_written_among_the_checkpoints(evidence: Path, tmp_path: Path) -> None:
    bundle = tmp_path / "claims.tar"
    assert called("bundle", evidence, bundle).code == 0
    before = bundle.read_bytes()

    again = called("bundle", evidence, bundle)
    inside = called("bundle", evidence, evidence / "claims.tar")
    (tmp_path / "link").symlink_to(evidence)
    linked = called("bundle", evidence, tmp_path / "link" / "claims.tar")

    assert (again.code, inside.code, linked.code) == (3, 2, 2)
    assert "exists already" in again.err
    assert bundle.read_bytes() == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["claims", "claims.tar", "first", "link"]
    assert called("bundle", tmp_path / "nowhere", tmp_path / "x.tar").code == 3


def test_every_command_reads_it_as_the_directory(
    evidence: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bundle = tmp_path / "claims.tar"
    called("bundle", evidence, bundle)
    monkeypatch.chdir(tmp_path)

    verified = [called("--json", place).document for place in (evidence, bundle)]
    listed = [called("list", "--json", place).document["checkpoints"] for place in (evidence, "claims.tar")]
    shown = [called("show", "--json", "-d", place, "claim-1").document["data"] for place in (evidence, bundle)]

    assert [one["verdict"] for one in verified] == ["damaged", "damaged"]
    assert verified[0]["paths"][0]["journal"] == verified[1]["paths"][0]["journal"]
    assert verified[1]["paths"][0]["quarantined"] == 1
    assert [(row["key"], row["generation"], row["state"]) for row in listed[0]] == [
        (row["key"], row["generation"], row["state"]) for row in listed[1]
    ]
    assert shown[0] == shown[1]
    printed = next(problem["next"] for problem in verified[1]["problems"] if problem["severity"] == "damaged")
    assert printed == f"checkpoint-verify diagnose bundle://{bundle}/claim-0.json"
    assert called(*printed.split()[1:]).code == 1
    refused = called("repair", "--all", "--rollback", "--yes", bundle)
    assert refused.lines[0].startswith("NOTHING DONE: a bundle is never changed")
    assert called("diff", evidence / "claim-1.json", "claims.tar/claim-3.json").code == 0


def test_restore_takes_it_back(evidence: Path, tmp_path: Path) -> None:
    bundle = tmp_path / "claims.tar"
    called("bundle", evidence, bundle)
    fresh = tmp_path / "fresh"
    fresh.mkdir(mode=0o700)

    whole = called("restore", "--yes", "-d", fresh, bundle)
    one = called("restore", "--yes", "-d", make(tmp_path / "other", 1), "claim-1", f"{bundle}/claim-1.json")

    assert whole.lines[0] == "DONE: 3 restored, 1 left as it is"  # claim-0 was edited by hand
    assert one.code == 0
    with CheckpointManager(fresh, CLAIMS) as manager:
        assert sorted(manager.load().checkpoints) == ["claim-1", "claim-3", "ns/new"]
        assert manager.get_checkpoint("claim-1").data["pods"] == ["newest"]


def test_a_redacted_one_has_no_data_and_cannot_be_restored(tmp_path: Path) -> None:
    directory = crashed(tmp_path / "claims")
    damage.edit_by_hand(directory, "claim-0")
    claims = make_claims(tmp_path / "dra")
    damage.truncate(claims, next(claims.glob("*.json")).stem, 400)
    bundle, other = tmp_path / "share.tar", tmp_path / "dra.tar"

    ended = called("bundle", "--redact", directory, bundle)
    called("bundle", "--redact", claims, other)
    listed = called("list", "--json", bundle).document["checkpoints"]
    refused = [
        called("restore", "--yes", "-d", directory, *words)
        for words in ([bundle], ["claim-1", f"{bundle}/claim-1.json"])
    ]

    assert ended.lines[0].startswith("BUNDLED, without data: 3 checkpoints, 1 previous generation, 1 journal")
    for secret in (b"secret", b"newest", b"default", b"train-", b"gpu-", b"ml"):
        assert all(secret not in blob for one in (bundle, other) for blob in members(one).values()), secret
    assert [(row["key"], row["generation"]) for row in listed] == [("claim-1", 2), ("claim-3", 1), ("ns%2Fnew", 1)]
    assert {ended.code for ended in refused} == {2}


def test_what_could_not_be_read_is_named(directory: Path, tmp_path: Path) -> None:
    (directory / "folder.json").mkdir()
    with failing(directory, "open", errno.EIO, about="claim-1.json", lasting=True):
        ended = called("bundle", directory, tmp_path / "claims.tar")

    assert ended.code == 3
    assert "left out: claim-1.json: Input/output error" in ended.out
    assert "left out: folder.json: a directory" in ended.out


@pytest.mark.parametrize("change", ["cut", "flip", "foreign"])
def test_a_damaged_or_foreign_file_is_no_bundle(directory: Path, tmp_path: Path, change: str) -> None:
    bundle = tmp_path / "claims.tar"
    called("bundle", directory, bundle)
    blob = bytearray(bundle.read_bytes())
    if change == "cut":
        os.truncate(bundle, len(blob) // 2)
    elif change == "flip":
        blob[blob.index(b"secret-2") + 2] ^= 1
        bundle.write_bytes(blob)
    else:
        with tarfile.open(bundle, "w") as tar:
            tar.add(directory, "../../outside")

    ended = called("list", bundle)

    assert ended.code == 2
    assert "bundle" in ended.err or "damaged" in ended.err
