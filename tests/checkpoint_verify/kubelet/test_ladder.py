"""The order in which kubelet 1.37 tries the forms, on documents made here and signed by a second hand."""

from __future__ import annotations

import json
from typing import Any

import pytest

from checkpoint_verify.kubelet import KubeletFile, Verdict, inspect


def fnv(text: str) -> int:
    digest = 2166136261
    for octet in text.encode():
        digest = (digest ^ octet) * 16777619 % 2**32
    return digest


PLAIN = (
    "(*state.CPUManagerCheckpoint){PolicyName:(string)static DefaultCPUSet:(string)0-3 "
    "Entries:(map[string]map[string]string)map[p:map[c:4-5]] Checksum:(checksum.Checksum)0}"
)
PODS = PLAIN.replace(
    "Checksum:",
    "PodEntries:(state.PodCPUAssignments)map[p:{CPUSet:(cpuset.CPUSet)"
    "{elems:(map[int]struct {})map[6:{} 7:{}]}}] Checksum:",
    1,
)
STATE: dict[str, Any] = {"policyName": "static", "defaultCpuSet": "0-3", "entries": {"p": {"c": "4-5"}}}
POD_ENTRIES = {"p": {"cpuSet": "6-7"}}


def examine(**members: Any) -> KubeletFile:
    found = inspect(json.dumps(STATE | members).encode(), "cpu_manager_state")
    assert found is not None
    return found


def sealed(state: Any, **members: Any) -> KubeletFile:
    text = state if isinstance(state, str) else json.dumps(state)
    return examine(**{"checksum": fnv(PLAIN), "data": text, "dataChecksum": fnv("(string)" + text)} | members)


def test_the_plain_form_is_loaded_by_its_checksum() -> None:
    found = examine(checksum=fnv(PLAIN))

    assert (found.format, found.verdict, found.warnings) == ("v2", Verdict.VALID, ())


def test_the_form_with_pods_is_loaded_by_its_checksum_under_either_type_name() -> None:
    for dump in (PODS, PODS.replace("Checkpoint)", "CheckpointV3)", 1)):
        found = examine(podEntries=POD_ENTRIES, checksum=fnv(dump))

        assert (found.format, found.verdict) == ("v3", Verdict.VALID)


def test_pod_entries_that_were_added_to_a_plain_form_are_ignored_with_its_checksum() -> None:
    found = examine(podEntries=POD_ENTRIES, checksum=fnv(PLAIN))

    assert (found.format, found.verdict) == ("v2", Verdict.VALID)


def test_unreadable_pod_entries_fall_back_to_the_plain_form() -> None:
    assert examine(podEntries={"p": {"cpuSet": "x"}}, checksum=fnv(PLAIN)).verdict is Verdict.VALID
    half_read = POD_ENTRIES | {"q": {"cpuSet": "x"}}
    assert examine(podEntries=half_read, checksum=fnv(PODS)).reason == "checksum-mismatch"


def test_the_text_form_is_loaded_from_its_text_alone() -> None:
    other = STATE | {"defaultCpuSet": "9", "podEntries": POD_ENTRIES}

    found = sealed(other)

    assert (found.format, found.verdict) == ("v4", Verdict.VALID)
    assert any("differs from data" in warning for warning in found.warnings)


def test_an_empty_seal_is_no_seal() -> None:
    assert sealed("", dataChecksum=0).verdict is Verdict.VALID
    assert sealed("", dataChecksum=0).format == "v2"
    assert sealed(STATE, data=None, dataChecksum=None).verdict is Verdict.VALID


@pytest.mark.parametrize(
    "members",
    [
        {"dataChecksum": 0},
        {"dataChecksum": None},
        {"dataChecksum": "7"},
        {"dataChecksum": -7},
        {"data": ""},
        {"data": None},
        {"data": 5},
        {"entries": []},
    ],
)
def test_any_sign_of_the_text_form_forbids_the_fall_back_to_a_sound_copy(members: dict[str, Any]) -> None:
    found = sealed(STATE, **members)

    assert (found.format, found.verdict) == ("v4", Verdict.DAMAGED)


@pytest.mark.parametrize(
    ("state", "reason"),
    [
        ("[]", "wrong-shape"),
        ("not json", "wrong-shape"),
        ({"policyName": "static", "defaultCpuSet": 5}, "wrong-shape"),
        ({"policyName": "static", "podEntries": {"p": {"cpuSet": "x"}}}, "wrong-shape"),
        ({"policyName": "static", "defaultCpuSet": "x"}, "bad-cpu-set"),
        ({"policyName": "static", "entries": {"p": {"c": "3-1"}}}, "bad-cpu-set"),
        ({}, "no-policy"),
        ("null", "no-policy"),
    ],
)
def test_text_that_kubelet_cannot_use_is_damage_though_its_checksum_is_right(state: Any, reason: str) -> None:
    found = sealed(state)

    assert (found.verdict, found.reason) == (Verdict.DAMAGED, reason)


def test_a_policy_that_no_kubelet_has_is_warned_about() -> None:
    found = sealed(STATE | {"policyName": "ctatic"})

    assert found.verdict is Verdict.VALID
    assert any("'ctatic'" in warning for warning in found.warnings)


PODS_TEXT = '{"entries":{"u":{"ContainerResources":{"c":{"requests":{"cpu":%s}}}}}}'


@pytest.mark.parametrize(
    ("quantity", "loaded"),
    [
        ('"500m"', True),
        ('"2Gi"', True),
        ("1.5", True),
        ('"1e3"', True),
        ("null", True),
        ('"5 Gi"', False),
        ('"2gi"', False),
        ('""', False),
        ("true", False),
        ('"\\u0031"', False),
    ],
)
def test_a_pod_state_needs_quantities_that_kubelet_can_parse(quantity: str, loaded: bool) -> None:
    text = PODS_TEXT % quantity

    blob = json.dumps({"data": text, "checksum": fnv("(string)" + text)}).encode()
    found = inspect(blob, "allocated_pods_state")

    assert found is not None
    assert found.verdict is (Verdict.VALID if loaded else Verdict.DAMAGED)
