"""The verdict agrees with kubelet's own on every file that kubelet judged."""

from __future__ import annotations

import pytest

from checkpoint_verify.kubelet import KUBELET_NAMES, KubeletFile, Verdict, inspect
from tests.checkpoint_verify.kubelet.vectors import VECTORS, Vector

UNRECOGNISABLE = (b"{}", b"null")
OTHER_NAMES = ("x.json", "state", "dra_manager_state", "memory_manager_state", "allocated_pods_state")


def every(vectors: tuple[Vector, ...]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("vector", vectors, ids=[vector.file for vector in vectors])


def is_valid(found: KubeletFile | None) -> bool:
    return found is not None and found.verdict is Verdict.VALID


def test_there_are_509_vectors_of_six_kinds_and_ten_forms() -> None:
    assert len(VECTORS) == 509
    assert len({vector.kind for vector in VECTORS}) == 6
    assert len({(vector.kind, vector.format) for vector in VECTORS}) == 10


@every(VECTORS)
def test_under_its_own_name_the_verdict_is_kubelets(vector: Vector) -> None:
    found = inspect(vector.blob, vector.kind)

    assert found is not None
    assert found.kind == vector.kind
    assert is_valid(found) == vector.valid, (vector.why, found.detail)
    assert found.verdict is not Verdict.UNKNOWN
    assert found.loads_in["1.37"] is vector.valid
    assert bool(found.reason) is not vector.valid
    if vector.valid:
        assert found.format == vector.format
        assert found.data is not None or vector.blob == b"null"
        assert found.expected == found.actual or "checksum0" in vector.file or "checksumnull" in vector.file


@every(tuple(vector for vector in VECTORS if vector.blob not in UNRECOGNISABLE))
def test_under_any_other_name_the_verdict_is_the_same(vector: Vector) -> None:
    for name in OTHER_NAMES:
        found = inspect(vector.blob, name)

        assert is_valid(found) == vector.valid, (name, vector.why)
        assert not (vector.valid and found is not None and found.kind != vector.kind) or (
            {found.kind, vector.kind} <= {"allocated_pods_state", "actuated_pods_state"}
        )


@every(tuple(vector for vector in VECTORS if vector.accepted_by_v1_35 is not None))
def test_asked_for_1_35_the_verdict_is_that_of_1_35(vector: Vector) -> None:
    found = inspect(vector.blob, vector.kind, "1.35")

    assert is_valid(found) == vector.accepted_by_v1_35, (vector.why, found and found.detail)
    assert found is not None
    assert found.loads_in["1.35"] is vector.accepted_by_v1_35


@pytest.mark.parametrize("name", sorted(KUBELET_NAMES))
def test_a_well_known_name_always_gets_an_answer(name: str) -> None:
    for blob in (b"", b"\0" * 512, b"[]", b"7", b'"text"', b"garbage", b'{"a":1}', b"{", b"{}", b"null"):
        assert inspect(blob, name) is not None
