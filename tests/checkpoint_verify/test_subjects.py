"""Claim, pods and devices beside the UID, in verify, list and diagnose; and no other data anywhere."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from checkpoint_verify.findings import summary
from checkpointmanager import CheckpointManager, Schema
from checkpointmanager.testing import damage
from draState import CLAIMS, ClaimPhase

from .claims import DRIVER, claim, make_claims, make_pods, uid
from .command import called
from .kubelet.test_nvidia import UID as NVIDIA_UID
from .kubelet.test_nvidia import written as nvidia
from .kubelet.vectors import blob_of

WHOLE = "claim ml/train-1, pod pod-1, device gpu.example.com/node-1/gpu-1"


def test_list_has_a_column_for_each(tmp_path: Path) -> None:
    claims = make_claims(tmp_path / "claims")

    listed = called("list", claims)
    documents = called("list", "--json", claims).document["checkpoints"]

    assert listed.lines[0].split()[:4] == ["key", "claim", "pods", "devices"]
    assert listed.lines[2].split()[:4] == [uid(1), "ml/train-1", "pod-1", "gpu.example.com/node-1/gpu-1"]
    assert documents[1]["subject"] == {
        "claims": ["ml/train-1"],
        "pods": ["pod-1"],
        "devices": ["gpu.example.com/node-1/gpu-1"],
        "phase": documents[1]["subject"]["phase"],
        "source": "",
    }


def test_pod_configs_name_their_claims_and_devices_but_not_their_configs(tmp_path: Path) -> None:
    listed = called("list", make_pods(tmp_path / "pods"))

    assert listed.lines[1].split()[:4] == ["pod-7", "ml/train-7", "pod-7", "gpu-7"]
    assert "secret" not in listed.out


def edit(claims: Path) -> None:
    path = claims / f"{uid(1)}.json"
    path.write_bytes(path.read_bytes().replace(b'"generation":1', b'"generation":7'))


HURTS: list[tuple[Callable[[Path], Any], bool, str]] = [
    (lambda path: damage.flip_bit(path, uid(1), 100 * 8), False, WHOLE),
    (edit, False, f"{WHOLE} (by its damaged bytes)"),
    (lambda path: damage.truncate(path, uid(1), 380), False, "claim ml/train-1 (by its damaged bytes)"),
    (lambda path: damage.truncate(path, uid(1), 60), False, ""),
    (lambda path: damage.truncate(path, uid(1), 60), True, f"{WHOLE} (as of the generation before)"),
    (lambda path: (path / f"{uid(1)}.json").write_bytes(b""), True, f"{WHOLE} (as of the generation before)"),
    (lambda path: path.chmod(0o777), False, ""),
]


@pytest.mark.parametrize(
    ("hurt", "with_previous", "holds"),
    HURTS,
    ids=["flip", "edit", "cut", "cut short", "previous", "empty", "directory"],
)
def test_verify_names_the_claim_of_a_damaged_file_and_the_source_of_that_knowledge(
    tmp_path: Path, hurt: Callable[[Path], Any], with_previous: bool, holds: str
) -> None:
    claims = make_claims(tmp_path / "claims", previous=(1,) if with_previous else ())
    hurt(claims)

    ended = called(claims)
    [problem] = called("--json", claims).document["problems"]

    assert ended.code == 1
    assert (f". Holds {holds}. Next: " if holds else ". Next: ") in ended.out
    assert (". Holds " in ended.out) is bool(holds)
    assert (problem["subject"] or {}).get("claims", []) == (["ml/train-1"] if holds else [])


def test_the_search_for_flipped_bits_is_limited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    claims = make_claims(tmp_path / "claims")
    damage.flip_bit(claims, uid(1), 100 * 8)
    monkeypatch.setattr(summary, "SEARCH_COST", 1000)

    assert f"Holds {WHOLE} (by its damaged bytes)" in called(claims).out


def test_diagnose_knows_it_for_sure_where_the_bytes_can_be_mended(tmp_path: Path) -> None:
    claims = make_claims(tmp_path / "claims")
    damage.flip_bit(claims, uid(1))

    assert f"holds  {WHOLE}\n" in called("diagnose", claims / f"{uid(1)}.json").out
    assert (
        f"holds  {WHOLE.replace('-1,', '-2,').replace('gpu-1', 'gpu-2')}\n"
        in called("diagnose", claims / f"{uid(2)}.json").out
    )


def test_a_kind_that_is_not_known_shows_no_data(directory: Path) -> None:
    damage.edit_by_hand(directory, "claim-1")

    for words in ((directory,), ("list", directory), ("diagnose", directory / "claim-2.json")):
        ended = called(*words)
        assert "secret" not in ended.out
        assert "Holds" not in ended.out
        assert "default/" not in ended.out


@pytest.mark.parametrize("phase", [None, *ClaimPhase])
def test_the_phase_of_a_driver_s_claim_is_shown(tmp_path: Path, phase: ClaimPhase | None) -> None:
    state = replace(claim(1), driver_states={DRIVER: replace(claim(1).driver_states[DRIVER], phase=phase)})
    with CheckpointManager(tmp_path / "claims", CLAIMS) as manager:
        manager.create_checkpoint(uid(1), state)

    text = called("diagnose", tmp_path / "claims" / f"{uid(1)}.json").out

    assert f"holds  {WHOLE}{f', {phase}' if phase else ''}\n" in text


def test_many_pods_are_counted(tmp_path: Path) -> None:
    with CheckpointManager(tmp_path / "claims", CLAIMS) as manager:
        manager.create_checkpoint(uid(1), claim(1, *(f"pod-{number}" for number in range(9))))

    assert "pod-0, pod-1, pod-2 and 6 more" in called("list", tmp_path / "claims").out


@pytest.mark.parametrize(
    ("name", "blob", "named"),
    [
        ("dra_manager_state", blob_of("dra_manager_state/one"), "claim vision/ingest-0-2da51, pod e7f05ec4"),
        (
            "checkpoint.json",
            nvidia().encode(),
            f"{NVIDIA_UID}\n      claim ml/train<0>, device gpu.nvidia.com/node-1/gpu-0",
        ),
    ],
)
def test_diagnose_lists_the_claims_that_a_file_of_kubelet_or_of_nvidia_names(
    tmp_path: Path, name: str, blob: bytes, named: str
) -> None:
    (tmp_path / name).write_bytes(blob)

    assert named in called("diagnose", tmp_path / name).out


@pytest.mark.parametrize(
    "inside",
    [None, [], [7], [{"PodUIDs": 7, "DriverState": [], "ClaimUID": None}], [{"DriverState": {"d": {"Devices": 7}}}]],
)
def test_content_of_any_shape_is_no_reason_to_fail(tmp_path: Path, inside: Any) -> None:
    text = json.dumps({"kind": "DRACheckpoint", "ClaimInfoStateList": inside})
    (tmp_path / "dra_manager_state").write_text(json.dumps({"Data": text, "Checksum": 1}))

    assert called("diagnose", tmp_path / "dra_manager_state").code == 1


def test_a_name_with_control_characters_is_escaped(tmp_path: Path) -> None:
    data = {"claim_uid": "a", "claim_name": "x\x1b[31m", "namespace": "n", "pod_uids": [], "driver_states": {}}
    with CheckpointManager(tmp_path / "claims", Schema[Any]("ClaimInfo", version=3)) as manager:
        manager.create_checkpoint("a", data)

    assert "n/x\\x1b[31m" in called("list", tmp_path / "claims").out
