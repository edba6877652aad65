"""What is said about files that are broken, odd, misnamed, or no kubelet files at all."""

from __future__ import annotations

import json
import zlib

import pytest

from checkpoint_verify.kubelet import KubeletFile, Verdict, inspect
from tests.checkpoint_verify.kubelet.vectors import blob_of

DRA = blob_of("dra_manager_state/one")
CPU_V4 = blob_of("cpu_manager_state/v4-several")


def examine(blob: bytes, name: str = "", version: str | None = None) -> KubeletFile:
    found = inspect(blob, name, version)
    assert found is not None
    return found


def dra_file(text: str) -> bytes:
    return json.dumps({"Data": text, "Checksum": zlib.crc32(text.encode())}).encode()


@pytest.mark.parametrize(
    ("blob", "reason"),
    [
        (b"", "empty"),
        (b" \n", "empty"),
        (b"\0" * 100, "nul-filled"),
        (DRA[:300] + b"\0" * 300, "nul-filled"),
        (DRA[:-1], "truncated"),
        (DRA[:300], "truncated"),
        (DRA[: DRA.index(b"\\") + 1], "truncated"),
        (DRA + b"}", "trailing-bytes"),
        (DRA + b"\0\0", "trailing-bytes"),
        (DRA[:40] + b"\x01" + DRA[41:], "not-json"),
        (b"\xef\xbb\xbf" + DRA, "not-json"),
        (b"[]", "wrong-shape"),
        (DRA.replace(b'"Checksum":', b'"Checksum":1'), "wrong-shape"),
        (DRA.replace(b"rack4", b"rack5"), "checksum-mismatch"),
        (dra_file("[]"), "wrong-shape"),
        (dra_file('{"ClaimInfoStateList":[{"PodUIDs":[]}]}'), "wrong-shape"),
        (dra_file("not json"), "wrong-shape"),
    ],
)
def test_each_kind_of_damage_has_its_own_word(blob: bytes, reason: str) -> None:
    found = examine(blob, "dra_manager_state")

    assert (found.verdict, found.reason) == (Verdict.DAMAGED, reason)
    assert found.detail.startswith("Kubelet 1.37 ")
    assert found.detail.endswith(".")
    assert not any(found.loads_in.values())


def test_a_mismatch_names_the_computed_and_the_stored_checksum() -> None:
    text, checksum = '{"ClaimInfoStateList":[]}', zlib.crc32(b'{"ClaimInfoStateList":[]}')

    found = examine(json.dumps({"Data": text, "Checksum": 5}).encode(), "dra_manager_state")

    assert (found.expected, found.actual) == (str(checksum), "5")


@pytest.mark.parametrize(
    "file",
    [
        "dra_manager_state/one",
        "allocated_pods_state/one",
        "kubelet_internal_checkpoint/one",
        "cpu_manager_state/v2-several",
        "memory_manager_state/v1-several",
    ],
)
def test_half_a_document_is_recognised_by_its_first_members(file: str) -> None:
    found = examine(blob_of(file)[:200], "unknown.json")

    assert (found.kind, found.reason) == (file.split("/", maxsplit=1)[0], "truncated")


@pytest.mark.parametrize(
    "blob",
    [
        b"",
        b"\0" * 64,
        b"{}",
        b"null",
        b"[1,2]",
        b'{"a":1}',
        b'{"data":"text"}',
        b'{"data":{"a":1},"checksum":5}',
        b'{"policyName":"x"}',
        b'{"checksum":"xxh3:9d4f0c3a5b1e2d77","format":1,"data":"{\\"entries\\":{}}"}',
        b'{"version":"v1","name":"package","checksum":1}',
        b'{"half":',
    ],
)
def test_a_file_of_another_program_is_not_claimed(blob: bytes) -> None:
    assert inspect(blob, "package.json") is None


@pytest.mark.parametrize("blob", [b"{}", b"null", b' {"other": 1} '])
def test_a_dra_state_without_data_is_accepted_as_kubelet_does_with_a_warning(blob: bytes) -> None:
    found = examine(blob, "dra_manager_state")

    assert found.verdict is Verdict.VALID
    assert any("forgets all claims" in warning for warning in found.warnings)


@pytest.mark.parametrize("kind", ["cpu_manager_state", "memory_manager_state"])
def test_an_empty_object_is_no_policy_state_since_no_kubelet_has_an_empty_policy(kind: str) -> None:
    found = examine(b"{}", kind)

    assert (found.verdict, found.reason) == (Verdict.DAMAGED, "no-policy")


def test_checksum_zero_is_accepted_with_a_warning_and_the_right_checksum_is_named() -> None:
    found = examine(blob_of("cpu_manager_state/v3-several.quirk-checksum0"), "cpu_manager_state")

    assert found.verdict is Verdict.VALID
    assert found.actual == "0" != found.expected
    assert any("unchecked" in warning for warning in found.warnings)
    assert any("without its podEntries" in warning for warning in found.warnings)


def test_members_that_kubelet_ignores_or_reads_twice_are_named() -> None:
    unknown = examine(blob_of("memory_manager_state/v1-several.quirk-unknownfield"))
    repeated = examine(blob_of("memory_manager_state/v1-several.quirk-dupkey"))

    assert any("somethingNew" in warning for warning in unknown.warnings)
    assert any("more than once" in warning and "checksum" in warning for warning in repeated.warnings)


@pytest.mark.parametrize("quirk", ["legacyflip", "legacychecksum"])
def test_a_wrong_copy_for_older_kubelets_is_a_warning_to_the_newest_and_damage_to_them(quirk: str) -> None:
    blob = blob_of(f"cpu_manager_state/v4-several.quirk-{quirk}")

    assert any("copy for older kubelets" in warning for warning in examine(blob).warnings)
    assert examine(blob, version="1.36").reason == "compat-copy"


def test_a_sound_copy_beside_damaged_data_is_valid_to_older_kubelets_with_a_warning() -> None:
    found = examine(blob_of("cpu_manager_state/v4-several.corrupt-flip"), version="1.36")

    assert found.verdict is Verdict.VALID
    assert any("Only the copy" in warning for warning in found.warnings)


@pytest.mark.parametrize(
    ("text", "checksum", "kind"),
    [("{}", 694314937, "allocated_pods_state"), ("{}", zlib.crc32(b"{}"), "dra_manager_state")],
)
def test_where_the_text_tells_nothing_the_fitting_checksum_tells_the_kind(text: str, checksum: int, kind: str) -> None:
    found = examine(json.dumps({"DATA": text, "CHECKSUM": checksum}).encode(), "copy.json")

    assert (found.kind, found.verdict) == (kind, Verdict.VALID)


def test_content_decides_over_a_wrong_name_and_the_name_is_warned_about() -> None:
    found = examine(DRA, "/var/lib/kubelet/cpu_manager_state")

    assert (found.kind, found.verdict) == ("dra_manager_state", Verdict.VALID)
    assert any("under the name cpu_manager_state" in warning for warning in found.warnings)


def test_the_text_inside_data_is_shown_decoded() -> None:
    assert examine(DRA).data["Data"]["kind"] == "DRACheckpoint"
    assert examine(CPU_V4).data["data"]["policyName"] == "static"
    assert examine(blob_of("dra_manager_state/quirk-notjsoninside")).data["Data"] == "not json"


def test_the_document_before_trailing_bytes_is_still_shown() -> None:
    assert examine(DRA + b"\n\0\0").data == examine(DRA).data


@pytest.mark.parametrize("depth", [101, 9_999, 10_000, 200_000])
@pytest.mark.parametrize("opening", [b"[", b'{"a":'])
def test_depth_never_breaks_the_reader(depth: int, opening: bytes) -> None:
    closing = b"]" if opening == b"[" else b"}"
    nested = opening * depth + b"1" + closing * depth

    found = examine(DRA[:-1] + b',"deep":' + nested + b"}", "dra_manager_state")

    # Go itself refuses more than 10,000 levels, and one is the file's own object.
    assert found.verdict is (Verdict.VALID if depth < 10_000 else Verdict.DAMAGED)
    assert found.data is None
    assert inspect(nested, "dra_manager_state") is not None
    assert inspect(opening * depth, "dra_manager_state") is not None


def test_an_unparsable_cpu_set_is_refused_though_the_checksum_is_zero() -> None:
    found = examine(b'{"policyName":"static","defaultCpuSet":"3-1","checksum":0}')

    assert (found.verdict, found.reason) == (Verdict.DAMAGED, "bad-cpu-set")


def test_a_null_memory_table_is_refused_though_the_checksum_is_right() -> None:
    found = examine(blob_of("memory_manager_state/v1-quirk-niltable"))

    assert (found.verdict, found.reason) == (Verdict.DAMAGED, "null-table")
    assert found.expected == found.actual
