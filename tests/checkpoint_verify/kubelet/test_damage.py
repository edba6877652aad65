"""No bytes make the reader raise, and no change of the covered content goes unnoticed."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from checkpoint_verify.kubelet import KUBELET_NAMES, Verdict, inspect
from tests.checkpoint_verify.kubelet.vectors import VECTORS, blob_of

SMALL = tuple(vector.blob for vector in VECTORS if len(vector.blob) < 6_000)
NAMES = (*KUBELET_NAMES, "x.json", "")
TOKENS = (b"{", b"}", b"[", b"]", b",", b":", b'"', b"\\", b"\\ud800", b"null", b"-0", b"1e9", b"\0", b"\xff", b"data")


@st.composite
def damaged_files(draw: st.DrawFn) -> bytes:
    blob = draw(st.sampled_from(SMALL))
    for _ in range(draw(st.integers(1, 4))):
        start = draw(st.integers(0, len(blob)))
        length = draw(st.integers(0, 40))
        patch = draw(st.one_of(st.binary(max_size=6), st.sampled_from(TOKENS), st.just(blob[start : start + length])))
        blob = blob[:start] + patch + blob[start + draw(st.integers(0, length)) :]
    return blob


@settings(max_examples=400, deadline=None)
@given(blob=damaged_files(), name=st.sampled_from(NAMES), version=st.sampled_from([None, "1.30", "1.36"]))
def test_no_damage_to_a_real_file_makes_the_reader_raise(blob: bytes, name: str, version: str | None) -> None:
    found = inspect(blob, name, version)

    if found is None:
        assert name not in KUBELET_NAMES
        return
    assert (found.reason == "") == (found.verdict is Verdict.VALID)
    assert found.detail
    assert len(found.loads_in) == 8


@settings(max_examples=300, deadline=None)
@given(blob=st.one_of(st.binary(max_size=200), st.text(alphabet='{}[]",:0123456789eE.+-\\utrfalsn ').map(str.encode)))
def test_no_bytes_at_all_make_the_reader_raise(blob: bytes) -> None:
    for name in NAMES:
        inspect(blob, name)


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

    for position in range(len(blob)):
        for flip in (0x01, 0x20, 0x80):
            changed = blob[:position] + bytes([blob[position] ^ flip]) + blob[position + 1 :]
            found = inspect(changed, kind)
            assert found is not None
            # What still loads differs in letter case, or lost its checksum and is warned about.
            if found.verdict is Verdict.VALID:
                assert _lower(found.data) == _lower(whole.data) or found.warnings, changed


def _lower(data: object) -> str:
    return repr(data).lower()
