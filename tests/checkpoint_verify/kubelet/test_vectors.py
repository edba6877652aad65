"""The verdict agrees with kubelet's own on every file that it judged, and on every byte changed in five of them."""

from __future__ import annotations

import pytest

from checkpoint_verify.kubelet import KUBELET_NAMES, KubeletFile, Verdict, inspect
from tests.checkpoint_verify.kubelet.vectors import VECTORS, Vector, blob_of
from tests.long import sample

UNRECOGNISABLE = (b"{}", b"null")
OTHER_NAMES = ("x.json", "memory_manager_state")
KINDS = sorted({vector.kind for vector in VECTORS})


def of_kind(kind: str) -> list[Vector]:
    return [vector for vector in VECTORS if vector.kind == kind]


def is_valid(found: KubeletFile | None) -> bool:
    return found is not None and found.verdict is Verdict.VALID


def test_there_are_509_vectors_of_six_kinds_and_ten_forms() -> None:
    assert len(VECTORS) == 509
    assert len(KINDS) == 6
    assert len({(vector.kind, vector.format) for vector in VECTORS}) == 10


@pytest.mark.parametrize("kind", KINDS)
def test_under_its_own_name_the_verdict_is_kubelets(kind: str) -> None:
    for vector in of_kind(kind):
        found = inspect(vector.blob, vector.kind)

        assert found is not None, vector.file
        assert found.kind == vector.kind, vector.file
        assert is_valid(found) == vector.valid, (vector.file, vector.why, found.detail)
        assert found.verdict is not Verdict.UNKNOWN, vector.file
        assert found.loads_in["1.37"] is vector.valid, vector.file
        assert bool(found.reason) is not vector.valid, vector.file
        if vector.valid:
            assert found.format == vector.format, vector.file
            assert found.data is not None or vector.blob == b"null", vector.file
            unchecked = "checksum0" in vector.file or "checksumnull" in vector.file
            assert found.expected == found.actual or unchecked, vector.file


@pytest.mark.parametrize("kind", KINDS)
def test_under_any_other_name_the_verdict_is_the_same(kind: str) -> None:
    for vector in sample(of_kind(kind), 5):
        for name in OTHER_NAMES if vector.blob not in UNRECOGNISABLE else ():
            found = inspect(vector.blob, name)

            assert is_valid(found) == vector.valid, (vector.file, name, vector.why)
            assert not (vector.valid and found is not None and found.kind != vector.kind) or (
                {found.kind, vector.kind} <= {"allocated_pods_state", "actuated_pods_state"}
            ), (vector.file, name)


@pytest.mark.parametrize("kind", KINDS)
def test_asked_for_1_35_the_verdict_is_that_of_1_35(kind: str) -> None:
    for vector in of_kind(kind):
        if vector.accepted_by_v1_35 is not None:
            found = inspect(vector.blob, vector.kind, "1.35")

            assert found is not None, vector.file
            assert is_valid(found) == vector.accepted_by_v1_35, (vector.file, vector.why, found.detail)
            assert found.loads_in["1.35"] is vector.accepted_by_v1_35, vector.file


@pytest.mark.parametrize("name", sorted(KUBELET_NAMES))
def test_a_well_known_name_always_gets_an_answer(name: str) -> None:
    for blob in (b"", b"\0" * 512, b"[]", b"7", b'"text"', b"garbage", b'{"a":1}', b"{", b"{}", b"null"):
        assert inspect(blob, name) is not None


@pytest.mark.parametrize(
    "file",
    [
        "dra_manager_state/emptylist",
        "allocated_pods_state/emptypod",
        "cpu_manager_state/v2-nilpod",
        "memory_manager_state/v1-empty",
        "kubelet_internal_checkpoint/empty",
    ],
)
def test_every_single_changed_byte_is_noticed_or_leaves_the_content_as_it_was(file: str) -> None:
    kind, blob = file.split("/", maxsplit=1)[0], blob_of(file)
    whole = inspect(blob, kind)
    assert whole is not None

    for position in sample(range(len(blob)), 3):
        for flip in (0x01, 0x20, 0x80):
            changed = blob[:position] + bytes([blob[position] ^ flip]) + blob[position + 1 :]
            found = inspect(changed, kind)
            assert found is not None
            # What still loads differs in letter case, or lost its checksum and is warned about.
            if found.verdict is Verdict.VALID:
                assert repr(found.data).lower() == repr(whole.data).lower() or found.warnings, changed
