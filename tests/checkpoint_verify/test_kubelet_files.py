"""Kubelet's own files through the command: the exit code agrees with kubelet, under any name."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

from checkpoint_verify.kubelet import KUBELET_NAMES

from ..long import sample
from .command import called
from .kubelet.test_health import state as health
from .kubelet.test_nvidia import written as nvidia
from .kubelet.vectors import VECTORS, blob_of


def test_the_exit_code_is_kubelet_s_verdict(tmp_path: Path) -> None:
    for vector in sample(VECTORS, 10):
        path = tmp_path / vector.kind
        path.write_bytes(vector.blob)

        assert called("--quiet", path).code == (0 if vector.valid else 1), vector.file


@pytest.fixture
def kubelet(tmp_path: Path) -> Path:
    """A node's /var/lib/kubelet with everything else that is beside the state files."""
    root = tmp_path / "kubelet"
    (root / "device-plugins").mkdir(parents=True)
    (root / "pods" / "uid").mkdir(parents=True)
    for kind, file in (
        ("cpu_manager_state", "cpu_manager_state/v4-several"),
        ("memory_manager_state", "memory_manager_state/v1-several"),
        ("dra_manager_state", "dra_manager_state/one"),
        ("allocated_pods_state", "allocated_pods_state/one"),
        ("device-plugins/kubelet_internal_checkpoint", "kubelet_internal_checkpoint/one"),
    ):
        (root / kind).write_bytes(blob_of(file))
    (root / "config.yaml").write_text("kind: KubeletConfiguration\n")
    (root / "config.json").write_text('{"auths": {}}')
    (root / "pods" / "uid" / "x.json").write_text("")
    return root


def test_the_whole_picture_of_a_node(kubelet: Path) -> None:
    ended = called(kubelet)
    (kubelet / ".123456789").write_bytes(b"")  # as kubelet leaves its temp files

    assert ended.code == 0
    assert ended.lines[0].startswith("GOOD: 5 kubelet state files in ")
    for text in ("kubelet_internal_checkpoint", "v4", "1.30 to 1.37"):
        assert text in ended.out
    assert "1 leftover temp file" in called(kubelet).out


def test_one_damaged_file_is_named_with_both_checksums_and_the_versions_that_load_it(kubelet: Path) -> None:
    (kubelet / "cpu_manager_state").write_bytes(blob_of("cpu_manager_state/v4-several.corrupt-flip"))

    ended = called(kubelet)
    listed = called("--json", kubelet).document["paths"][0]["kubelet"]
    found = next(one for one in listed if one["kind"] == "cpu_manager_state")

    assert ended.code == 1
    assert "DAMAGED: 1 of 5 kubelet state files" in ended.lines[0]
    assert "(should be " in ended.out
    assert found["verdict"] == "damaged"
    assert found["expected"] != found["actual"]
    assert (found["loads_in"]["1.36"], found["loads_in"]["1.37"]) == (True, False)


def test_another_kubelet_version_can_be_given(kubelet: Path) -> None:
    (kubelet / "cpu_manager_state").write_bytes(blob_of("cpu_manager_state/v4-several.corrupt-flip"))

    assert called("--kubelet-version", "v1.36.2", kubelet).code == 0
    assert called("--kubelet-version", "1.37", kubelet).code == 1


OLD_FORM = b'{"version":"v1","entries":[{"DriverName":"d","ClassName":"c","ClaimUID":"u"}],"checksum":5}'


@pytest.mark.parametrize(
    ("blob", "verdict", "why"),
    [(b"{}", "GOOD, with 1 warning", "forgets all claims"), (OLD_FORM, "UNVERIFIED", "is not verified here")],
    ids=["accepted although it should not be", "a form whose checksum is not known"],
)
def test_what_kubelet_may_load_is_a_warning_and_no_damage(kubelet: Path, blob: bytes, verdict: str, why: str) -> None:
    (kubelet / "dra_manager_state").write_bytes(blob)

    ended = called(kubelet)

    assert ended.code == 0
    assert ended.lines[0].startswith(verdict)
    assert why in ended.out
    assert called("--strict", kubelet).code == 1


@pytest.mark.parametrize("blob", [b"", b"\0" * 512, b'{"half":', b"garbage"])
def test_what_cannot_be_recognised_is_damaged_when_it_is_named(tmp_path: Path, blob: bytes) -> None:
    for name, guess in (
        ("pod-7.json", "probably the checkpoint of key 'pod-7'"),
        ("state", "nothing shows what it was"),
    ):
        (tmp_path / name).write_bytes(blob)
        ended = called(tmp_path / name)
        assert ended.code == 1
        assert guess in ended.out
    (tmp_path / "dra_manager_state").write_bytes(blob)
    assert "dra_manager_state" in called("diagnose", tmp_path / "dra_manager_state").out


def test_show_diff_diagnose_list_and_bundle_understand_them(kubelet: Path) -> None:
    dra = kubelet / "dra_manager_state"
    old = kubelet.parent / "old"
    old.write_bytes(blob_of("dra_manager_state/many"))

    assert "DRACheckpoint" in called("show", dra).out
    assert called("show", "--json", kubelet, "kubelet_internal_checkpoint").document["data"]["Data"]
    assert "$.data.Data.ClaimInfoStateList" in called("diff", old, dra).out
    assert "kubelet 1.31 to 1.37" in called("diagnose", dra).out
    assert "dra_manager_state" in called("list", kubelet).out
    assert "5 files of kubelet or a driver" in called("bundle", kubelet, kubelet.parent / "kubelet.tar").out
    assert called("list", "--json", kubelet.parent / "kubelet.tar").document["checkpoints"][0]["state"] == "good"


def test_a_well_known_name_behind_a_link_is_not_followed_and_not_called_damaged(kubelet: Path) -> None:
    os.rename(kubelet / "dra_manager_state", kubelet.parent / "elsewhere")
    (kubelet / "dra_manager_state").symlink_to("../elsewhere")

    ended = called(kubelet)

    assert ended.code == 3
    assert "not followed" in ended.out


CONSEQUENCES = {  # for each kind, its first words
    "cpu_manager_state": "The CPU manager refuses this file, and kubelet does not start",
    "memory_manager_state": "The memory manager refuses this file, and kubelet does not start",
    "dra_manager_state": "The DRA manager refuses this file, and kubelet does not start",
    "kubelet_internal_checkpoint": "The device manager logs this and continues: kubelet starts",
    "allocated_pods_state": "Kubelet panics when it starts",
    "actuated_pods_state": "Kubelet panics when it starts",
    "pod_status_manager_state": "Kubelet panics when it starts",
    "dra_health_state": "Kubelet logs this and starts without device health",
}


@pytest.mark.parametrize("kind", KUBELET_NAMES)
def test_damage_says_what_that_manager_does_and_the_remedies_begin_with_one(tmp_path: Path, kind: str) -> None:
    (tmp_path / kind).write_bytes(b'{"half')

    verified = called(tmp_path / kind).out
    text = called("diagnose", tmp_path / kind).out

    assert CONSEQUENCES[kind] in verified
    remedies = text.partition("What to do\n")[2]
    assert remedies.startswith("  1. ")
    assert "Or " not in remedies
    goes_on = kind in ("kubelet_internal_checkpoint", "dra_health_state")
    assert ("Kubelet starts without any action" in remedies) is goes_on
    assert ("kubectl drain" in remedies) is not goes_on
    assert ("dra-agent release UID" in remedies) is (kind == "dra_manager_state")


@pytest.mark.parametrize(
    ("name", "blob", "first_words"),
    [
        ("cpu_manager_state", blob_of("cpu_manager_state/v4-several.corrupt-flip"), ["Go", "Move"]),
        # It can still be read, so it is to be read before it is moved.
        (
            "dra_manager_state",
            blob_of("dra_manager_state/one").replace(b"rack4", b"rack5"),
            ["Write", "Move", "Afterwards"],
        ),
    ],
)
def test_the_mildest_remedy_comes_first(kubelet: Path, name: str, blob: bytes, first_words: list[str]) -> None:
    (kubelet / name).write_bytes(blob)

    remedies = called("diagnose", "--json", kubelet / name).document["remedies"]

    assert [remedy["what"].partition(" ")[0] for remedy in remedies] == first_words


def test_a_health_file_has_no_checksum_which_is_said_and_is_no_warning(kubelet: Path) -> None:
    (kubelet / "dra_health_state").write_bytes(health())

    ended = called("--strict", kubelet)

    assert ended.code == 0
    assert ended.lines[0].startswith("GOOD: 6 kubelet state files (1 without a checksum) in ")
    assert re.search(r"dra_health_state +v1 +unverified", ended.out)
    assert called(kubelet / "dra_health_state").lines[0].startswith("UNVERIFIED: ")


def test_the_file_of_nvidia_s_driver_in_its_own_directory(tmp_path: Path) -> None:
    directory = tmp_path / "gpu.nvidia.com"
    directory.mkdir()
    (directory / "cp.lock").touch()
    (directory / "other.json").write_text('{"half')  # not the driver's checkpoint, so not state
    path = directory / "checkpoint.json"
    path.write_text(nvidia())

    good = called("--strict", directory)
    assert (good.code, good.lines[0].partition(" in ")[0]) == (0, "GOOD: 1 state file")
    assert "PrepareCompleted" in called("show", path).out

    path.write_text(nvidia().replace("PrepareCompleted", "PrepareStarted"))
    unverified = called(directory)
    assert (unverified.code, unverified.lines[0].partition(" in ")[0]) == (0, "UNVERIFIED: 1 of 1 state file")
    assert "another version takes it for damaged and does not start" in unverified.out
    assert called("--strict", directory).code == 1

    path.write_text(nvidia()[:300])
    damaged = called(directory)
    assert damaged.code == 1
    assert "NVIDIA's DRA driver exits at every start" in damaged.out
    assert "kubectl drain" in called("diagnose", path).out


def test_a_report_among_checkpoints_never_was_one(directory: Path) -> None:
    bundle = called("list", "--json", directory).out
    (directory / "bundle.json").write_text(bundle)
    (directory / "other.json").write_text('{"generation": {"readable_by": 1}, "x": {"readable_by": 1}}')

    ended = called(directory)

    assert ended.code == 1
    for name, what in (("bundle", "the output of checkpoint-verify list"), ("other", "a JSON document, but neither")):
        assert f"{directory}/{name}.json: unrecognised: {what}" in ended.out
        assert "changed after it was written" not in ended.out
        text = called("diagnose", directory / f"{name}.json").out
        assert "This was never a checkpoint" in text
        assert f"1. Move it out of the directory; it is not a checkpoint.\n     mv {directory}/{name}.json" in text
        assert "2." not in text


@pytest.mark.parametrize("folder", ["gpu.nvidia.com", "compute-domain.nvidia.com"])
@pytest.mark.parametrize(
    "content",
    [b"", b"\0" * 700, nvidia()[:300].encode(), nvidia()[:20].encode() + b"\0" * 80],
    ids=["empty", "NUL", "cut", "NUL from the middle"],
)
def test_the_file_of_nvidia_s_driver_after_a_power_loss_is_damage_and_never_repaired(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, folder: str, content: bytes
) -> None:
    directory = tmp_path / "kubelet" / "plugins" / folder
    directory.mkdir(parents=True)
    path = directory / "checkpoint.json"
    path.write_bytes(content)
    before = sorted(directory.iterdir())
    monkeypatch.chdir(directory)

    searched = called("--find", tmp_path)
    diagnosed = called("diagnose", "--json", path).document

    assert (searched.code, called(directory).code, called(".").code, called(path).code) == (1, 1, 1, 1)
    assert searched.lines[0].startswith("DAMAGED: 1 of 1 state file")
    assert "NVIDIA's DRA driver exits at every start" in searched.out
    commands = [command for remedy in diagnosed["remedies"] for command in remedy["commands"]]
    assert diagnosed["kubelet"]["kind"] == "nvidia_checkpoint"
    assert any(command.startswith(f"mv {path} ") for command in commands)
    assert not any("repair" in command for command in commands)
    for words in (["--all", directory], [path], ["checkpoint.json"], ["--all", "."]):
        assert called("repair", "--yes", "--discard", "--rollback", *words).code == 1
    assert sorted(directory.iterdir()) == before
    assert path.read_bytes() == content


def test_an_empty_file_of_an_unknown_program_is_not_repaired(tmp_path: Path) -> None:
    (tmp_path / "settings.json").touch()

    ended = called("repair", "--yes", "--discard", tmp_path / "settings.json")

    assert ended.code == 1
    assert "nothing shows that it was a checkpoint" in ended.out
    assert [path.name for path in tmp_path.iterdir()] == ["settings.json"]


@pytest.mark.parametrize("name", KUBELET_NAMES)
def test_the_commands_for_a_refused_file_work_twice_and_while_kubelet_is_down(kubelet: Path, name: str) -> None:
    path = kubelet / ("device-plugins" if name == "kubelet_internal_checkpoint" else "") / name
    path.write_bytes(b"")

    remedies = called("diagnose", "--json", path).document["remedies"]
    commands = [command for remedy in remedies for command in remedy["commands"]]

    [move] = [command for command in commands if command.startswith("mv ")]
    for number in range(2):  # damaged again after it was mended once
        path.write_bytes(b"%d" % number)
        there = move.replace("/root/", f"{kubelet}/moved-").replace("$(date +%s)", f"$(echo {number})")
        subprocess.run(["/bin/sh", "-c", there], check=True, timeout=500)
        assert not path.exists()
    assert [kept.read_bytes() for kept in sorted(kubelet.glob("moved-*"))] == [b"0", b"1"]
    assert "$(date +%s)" in move
    drains = [number for number, command in enumerate(commands) if command.startswith("kubectl drain")]
    for number in drains:  # nothing can be evicted before kubelet runs again
        assert commands.index("systemctl start kubelet") < number
        assert "--timeout=" in commands[number]
        assert "--delete-emptydir-data" in commands[number]
