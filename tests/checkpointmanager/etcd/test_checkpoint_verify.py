"""The operator's command reports the same on etcd:// as on a directory, and repairs only as the owner."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from checkpoint_verify import cli
from checkpoint_verify import etcd as etcdurl
from checkpoint_verify.commands import repair
from checkpoint_verify.commands.repair import apply_plans
from checkpointmanager import (
    CheckpointManager,
    CheckpointNotFound,
    Put,
    Replaces,
)
from checkpointmanager.etcd import EtcdStore

from .client import Etcd
from .conftest import Opening
from .line import Line, Request
from .servers import Cluster, free_ports

Manager = CheckpointManager[Any]


@pytest.fixture
def url(cluster: Cluster, prefix: str) -> str:
    return f"etcd://{cluster.endpoints[0].removeprefix('http://')}{prefix}"


@pytest.fixture
def store(opening: Opening) -> EtcdStore:
    """Good: a; damaged, with an exact repair: b; with a previous generation only: c; hopeless: d."""
    store = opening(owner="agent 7")
    manager: Manager = CheckpointManager(store)
    for key in "abcd":
        manager.create_checkpoint(key, {"number": 1})
    for key in "abc":
        manager.create_checkpoint(key, {"number": 2})
    flipped = store.read("b")
    flipped = flipped[:60] + bytes([flipped[60] ^ 1]) + flipped[61:]
    store.commit([Put("b", flipped, 1, Replaces.DAMAGED)])
    store.commit([Put(key, b"rubbish", 1, Replaces.DAMAGED) for key in "cd"])
    return store


@pytest.mark.parametrize("directory", ["-d URL", "URL", "URL/KEY.json"])
def test_one_checkpoint_is_shown(
    store: EtcdStore, url: str, directory: str, capsys: pytest.CaptureFixture[str]
) -> None:
    words = {"-d URL": ["-d", url, "a"], "URL": [url, "a"], "URL/KEY.json": [f"{url}/a.json"]}[directory]
    assert cli.main(["show", *words]) == 0
    assert f"GOOD {url}/a.json" in capsys.readouterr().out


def test_everything_is_verified_and_the_holder_of_the_lock_is_named(
    store: EtcdStore, url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["--json", url]) == 1
    document = json.loads(capsys.readouterr().out)
    (found,) = document["paths"]
    assert found["path"] == url
    assert found["states"]["good"] == 1
    assert found["states"]["damaged"] == 3
    assert found["previous"]["count"] == 3
    assert found["lock"]["state"] == "held"
    assert found["lock"]["holder"]["owner"] == "agent 7"
    assert {problem["path"] for problem in document["problems"]} == {f"{url}/{key}.json" for key in "bcd"}


def test_no_output_names_the_temporary_copy(store: EtcdStore, url: str, capsys: pytest.CaptureFixture[str]) -> None:
    runs = [[url], ["list", url], ["diff", "--previous", url, "a"], ["diagnose", f"{url}/b.json"]]
    for words in runs:
        cli.main(words)
        shown = capsys.readouterr()
        assert url in shown.out or words[0] == "list"
        assert "checkpoint-verify-" not in shown.out + shown.err


@pytest.mark.parametrize("blob", [b"", b"\0" * 4096, b'{"checksum":"xxh3:' + b"0" * 4078])
def test_damage_in_etcd_is_blamed_on_a_program_not_on_a_disk(
    store: EtcdStore, url: str, blob: bytes, capsys: pytest.CaptureFixture[str]
) -> None:
    store.commit([Put("d", blob, 1, Replaces.DAMAGED)])
    cli.main([url])
    cli.main(["diagnose", f"{url}/d.json"])
    shown = capsys.readouterr().out
    assert "Another program wrote this: etcd returns exactly the bytes that were put into it." in shown
    for word in ("power", "disk", "temp file", "fsck"):
        assert word not in shown


def test_an_empty_prefix_leads_to_no_path_of_this_machine(
    cluster: Cluster, url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main([url]) == 3
    assert "Next: check the prefix\n" in capsys.readouterr().out


def test_files_to_write_are_relative_to_the_directory_of_the_caller(
    store: EtcdStore, url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert cli.main(["--quiet", "--prometheus", "checkpoints.prom", url]) == 1
    assert f'directory="{url}"' in (tmp_path / "checkpoints.prom").read_text()


def test_nothing_is_changed_while_the_agent_runs(
    store: EtcdStore, url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    copy = store.quarantine("a", "replaced")
    CheckpointManager[Any](store).create_checkpoint("a", {"number": 3})
    before = dict(store.snapshot())
    assert cli.main(["repair", "--dry-run", "--all", url]) == 1
    assert f"will be repaired: {url}/b.json" in capsys.readouterr().out, "a plan needs no lock"
    for status, words in (
        (1, ["repair", "--yes", "--all", url]),
        (3, ["restore", "--yes", "-d", url, "a", copy]),
        (3, ["quarantine", "purge", "--yes", "-d", url, "a"]),
    ):
        assert cli.main(words) == status
        shown = capsys.readouterr()
        assert "'agent 7'" in shown.out + shown.err
        assert dict(store.snapshot()) == before


def test_an_agent_that_starts_meanwhile_keeps_repair_out(
    store: EtcdStore, url: str, opening: Opening, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    store.close()
    agents: list[EtcdStore] = []

    def start_an_agent(*arguments: Any, **options: Any) -> int:
        agents.append(opening(owner="restarted"))
        return apply_plans(*arguments, **options)

    monkeypatch.setattr(repair, "apply_plans", start_an_agent)
    assert cli.main(["repair", "--yes", "--all", url]) == 1
    out = capsys.readouterr().out
    assert out.startswith("NOTHING DONE")
    assert "'restarted'" in out
    assert agents[0].quarantined() == {}


def test_repair_is_exact_or_rolls_back_or_discards_as_the_options_say(
    store: EtcdStore, url: str, opening: Opening, capsys: pytest.CaptureFixture[str]
) -> None:
    store.close()
    assert cli.main(["repair", "--yes", f"{url}/b.json"]) == 0
    assert cli.main(["repair", "--yes", "--all", url]) == 1, "c and d are left"
    assert cli.main(["repair", "--yes", "--all", "--rollback", "--discard", url]) == 0
    assert cli.main([url]) == 0
    capsys.readouterr()
    reader = opening(read_only=True)
    loaded = CheckpointManager[Any](reader).load()
    numbers = {key: checkpoint.data["number"] for key, checkpoint in loaded.checkpoints.items()}
    assert numbers == {"a": 2, "b": 2, "c": 1}
    assert sorted(reader.quarantined()) == ["b", "c", "d"]
    assert cli.main(["quarantine", "list", url]) == 0
    shown = capsys.readouterr().out
    assert all(os.path.basename(copy) in shown for copies in reader.quarantined().values() for copy in copies)
    assert cli.main(["quarantine", "purge", "--yes", "--all", url]) == 0
    assert sorted(reader.quarantined()) == ["d"], "its copy is all that is left"


def test_a_copy_in_quarantine_is_put_back_and_what_it_replaces_is_kept(
    store: EtcdStore, url: str, opening: Opening
) -> None:
    manager: Manager = CheckpointManager(store)
    copy = store.quarantine("a", "replaced")
    before = manager.get_checkpoint("a")
    manager.create_checkpoint("a", {"number": 3})
    newer = store.read("a")
    store.close()
    assert cli.main(["restore", "--yes", "-d", url, "a", copy]) == 0
    reader = opening(read_only=True)
    back = CheckpointManager[Any](reader).get_checkpoint("a")
    assert back.data == before.data
    assert back.generation > before.generation + 1
    assert newer in [value for name, value in reader.snapshot() if name.startswith(".quarantine/a.")]


def test_a_removed_checkpoint_is_put_back_from_its_copy(store: EtcdStore, url: str, opening: Opening) -> None:
    copy = store.quarantine("a", "replaced")
    whole = store.read("a")
    CheckpointManager[Any](store).remove_checkpoint("a")
    store.close()
    assert cli.main(["restore", "--yes", "-d", url, "a", copy]) == 0
    assert opening(read_only=True).read("a") == whole


@pytest.mark.parametrize("name", ["a.json", ".quarantine/a.json"])
def test_only_copies_are_deleted(store: EtcdStore, etcd: Etcd, prefix: str, name: str) -> None:
    etcd.put(f"{prefix}/.quarantine/a.json", b"not a copy")
    before = dict(store.snapshot())
    with pytest.raises(CheckpointNotFound):
        store.delete_copy(f"{store.path}/{name}")
    assert dict(store.snapshot()) == before


@pytest.fixture
def written(store: EtcdStore, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The paths that the command writes to."""
    paths: list[str] = []
    create = etcdurl._private

    def creating(path: str, flags: int) -> int:
        paths.append(path)
        return create(path, flags)

    monkeypatch.setattr(etcdurl, "_private", creating)
    return paths


def test_foreign_names_below_the_prefix_are_never_written_to_the_disk(
    written: list[str], url: str, etcd: Etcd, prefix: str, capsys: pytest.CaptureFixture[str]
) -> None:
    names = [
        "../../foreign.json",
        ".quarantine/../../../foreign.json",
        "sub/foreign.json",
        ".quarantine/sub/foreign.json",
    ]
    for name in names:
        etcd.put(f"{prefix}/{name}", b"x")
    assert cli.main([url]) == 1
    assert "1 good, 3 damaged" in capsys.readouterr().out
    assert f"{url}/a.json" in written
    assert not any("foreign" in path for path in written)


def test_a_copy_whose_moment_is_compacted_meanwhile_is_an_error(
    store: EtcdStore, url: str, etcd: Etcd, line: Line, capsys: pytest.CaptureFixture[str]
) -> None:
    store.commit([Put(f"k{number}", b"", 1, Replaces.ABSENT) for number in range(65)])  # more than one page
    del line.sent[:]

    def compact(request: Request) -> Any:
        reply = request.send()
        if len(line.sent) == 1:
            etcd.compact(etcd.put("/other", b""))
        return reply

    line.carry = compact
    assert cli.main([url]) == 3
    assert "compacted" in capsys.readouterr().err


def test_a_cluster_that_does_not_answer_is_an_error_of_its_own(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    opened = EtcdStore.__init__
    monkeypatch.setattr(EtcdStore, "__init__", lambda *given, **options: opened(*given, **{**options, "timeout": 0.2}))
    assert cli.main([f"etcd://127.0.0.1:{free_ports(1)[0]}/agents"]) == 3
    assert "check the endpoints" in capsys.readouterr().err
