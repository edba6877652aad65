"""Which kubelet loads which form, and forms that are read but not verified."""

from __future__ import annotations

import json

import pytest

from checkpoint_verify.kubelet import KubeletFile, Verdict, inspect
from checkpoint_verify.kubelet.checksum import fnv32a_of_string
from tests.checkpoint_verify.kubelet.vectors import blob_of

SIGNS = {True: "+", False: "-", None: "?"}


def examine(blob: bytes, name: str = "", version: str | None = None) -> KubeletFile:
    found = inspect(blob, name, version)
    assert found is not None
    return found


def loads(found: KubeletFile) -> str:
    return "".join(SIGNS[answer] for answer in found.loads_in.values())


@pytest.mark.parametrize(
    ("file", "expected"),  # one sign a version, 1.30 to 1.37
    [
        ("dra_manager_state/one", "-+++++++"),
        ("cpu_manager_state/v2-several", "++++++++"),
        ("cpu_manager_state/v2-quirk-typename", "------?+"),
        ("cpu_manager_state/v3-several", "------?+"),
        ("cpu_manager_state/v3-quirk-typename", "-------+"),
        ("cpu_manager_state/v4-several", "++++++++"),
        ("cpu_manager_state/v4-several.quirk-legacyflip", "-------+"),
        ("cpu_manager_state/v4-several.corrupt-flip", "+++++++-"),
        ("cpu_manager_state/v2-several.quirk-checksum0", "++++++++"),
        ("memory_manager_state/v1-several", "++++++++"),
        ("memory_manager_state/v1-several.quirk-checksum0", "------?+"),
        ("memory_manager_state/v2-several", "------?+"),
        ("memory_manager_state/v3-several", "++++++++"),
        ("kubelet_internal_checkpoint/several", "++++++++"),
        ("allocated_pods_state/several", "???+++++"),
        ("actuated_pods_state/one", "???+++++"),
        ("allocated_pods_state/one.corrupt-empty", "???-----"),
    ],
)
def test_each_form_says_which_versions_load_it(file: str, expected: str) -> None:
    found = examine(blob_of(file), file.split("/", maxsplit=1)[0])

    assert list(found.loads_in) == [f"1.{minor}" for minor in range(30, 38)]
    assert loads(found) == expected


@pytest.mark.parametrize("spelling", ["1.35", "v1.35", "1.35.8", "v1.35.0-rc.1", " 1.35 "])
def test_a_version_may_be_spelled_as_kubelet_prints_it(spelling: str) -> None:
    assert examine(blob_of("cpu_manager_state/v3-several"), version=spelling).kubelet_version == "1.35"


@pytest.mark.parametrize("version", ["1.29", "1.38", "2.0", "newest", ""])
def test_an_unknown_version_is_refused_and_the_known_ones_are_named(version: str) -> None:
    with pytest.raises(ValueError, match=r"known versions: 1\.30, .* 1\.37"):
        inspect(b"{}", "dra_manager_state", version)


def test_a_newer_form_is_refused_by_an_older_kubelet_as_another_version_not_as_a_bad_checksum() -> None:
    found = examine(blob_of("cpu_manager_state/v3-several"), version="1.35")

    assert (found.verdict, found.reason, found.format) == (Verdict.DAMAGED, "other-version", "v3")


def test_the_form_of_an_alpha_gate_is_valid_in_its_version_with_a_warning() -> None:
    found = examine(blob_of("memory_manager_state/v2-several"), version="1.36")

    assert found.verdict is Verdict.VALID
    assert any("PodLevelResourceManagers" in warning for warning in found.warnings)


OLD_DRA = (
    b'{"version":"v1","entries":[{"DriverName":"gpu.example","ClaimUID":"u","ClaimName":"c","Namespace":"n",'
    b'"PodUIDs":{"p":{}},"CDIDevices":{"gpu.example":["vendor/gpu=0"]}}],"checksum":123}'
)
OLD_CPU = b'{"policyName":"static","defaultCpuSet":"0-3","entries":{"cafe":"4-5"},"checksum":123}'
OLD_PODS = b'{"allocationEntries":{"uid":{"main":{"cpu":"1"}}},"checksum":123}'
OLD_DEVICES = (
    b'{"Data":{"PodDeviceEntries":[{"PodUID":"u","ContainerName":"c","ResourceName":"r","DeviceIDs":["a"],'
    b'"AllocResp":""}],"RegisteredDevices":{}},"Checksum":123}'
)


@pytest.mark.parametrize(
    ("blob", "kind", "form", "expected"),
    [
        (OLD_DRA, "dra_manager_state", "pre-1.31", "?-------"),
        (b'{"version":"v1","checksum":123}', "dra_manager_state", "pre-1.31", "?-------"),
        (OLD_CPU, "cpu_manager_state", "v1", "???????-"),
        (OLD_PODS, "pod_status_manager_state", "pre-1.32", "??-?????"),
        (OLD_DEVICES, "kubelet_internal_checkpoint", "v1", "????????"),
    ],
)
def test_a_form_whose_checksum_is_not_known_is_unknown_and_never_damaged(
    blob: bytes, kind: str, form: str, expected: str
) -> None:
    for name in (kind, "copy.json"):
        for version in (None, "1.30", "1.35", "1.37"):
            found = examine(blob, name, version)

            assert (found.kind, found.format, found.verdict) == (kind, form, Verdict.UNKNOWN)
            assert (found.actual, found.expected) == ("123", "")
            assert loads(found) == expected
            assert found.data is not None


def test_a_bare_checksum_is_an_old_empty_state_only_under_the_old_name() -> None:
    assert examine(b'{"checksum":9}', "pod_status_manager_state").verdict is Verdict.UNKNOWN
    assert examine(b'{"checksum":9}', "allocated_pods_state").verdict is Verdict.DAMAGED


def test_the_older_name_of_the_pod_state_has_the_same_form() -> None:
    blob = blob_of("allocated_pods_state/several")

    found = examine(blob, "pod_status_manager_state")

    assert (found.kind, found.verdict, loads(found)) == ("pod_status_manager_state", Verdict.VALID, "??+?????")
    assert examine(blob, "pod_status_manager_state", "1.32").verdict is Verdict.VALID
    assert examine(blob, "pod_status_manager_state", "1.35").verdict is Verdict.UNKNOWN


def test_the_cpus_of_admission_are_read_under_both_of_their_names() -> None:
    """KEP-5554 called them originals before it called them baselines."""
    file = json.loads(blob_of("cpu_manager_state/v4-podentries"))
    file["data"] = file["data"].replace("baseline", "original")
    file["dataChecksum"] = fnv32a_of_string(file["data"])

    for blob in (blob_of("cpu_manager_state/v4-podentries"), json.dumps(file).encode()):
        found = inspect(blob, "cpu_manager_state")
        assert found
        assert (found.verdict, found.warnings) == (Verdict.VALID, ())
