"""checkpoint-verify and draState's import have one verdict about every dra_manager_state."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from checkpoint_verify.kubelet import inspect
from draState import read_dra_manager_state
from tests.checkpoint_verify.kubelet.vectors import VECTORS
from tests.checkpoint_verify.kubelet.verdicts import DRA, agreed, by_tool
from tests.draState.test_kubelet import of_claims, sealed
from tests.draState.test_kubelet_properties import TREES, spelled
from tests.long import times


def nested(levels: int) -> str:
    """That many levels, one of them the object around the list."""
    return '{"deep":' + "[" * (levels - 1) + "]" * (levels - 1) + "}"


@pytest.mark.parametrize(
    ("blob", "verdict"),
    [
        # Without a checksum it is not the old form, and the newest kubelet takes it for an empty state.
        (b'{"version":"v1","entries":[]}', "valid"),
        (b'{"version":"v1","entries":[{"ClaimUID":"u"}]}', "valid"),
        (b'{"version":"v1","entries":[{}],"checksum":1}', "unverified"),
        (b'{"version":"v1","entries":[null],"checksum":1}', "unverified"),
        (b'{"version":"v1","entries":[],"checksum":1}', "unverified"),
        (b'{"version":"v1","entries":[],"checksum":18446744073709551615,"more":{}}', "unverified"),
        (b'{"version":"v1","checksum":1}', "unverified"),
        # Neither form: the newest kubelet reads a checksum that is not that of the empty state.
        (b'{"version":"v1","checksum":1,"more":{}}', "damaged"),
        (b'{"entries":[],"checksum":1}', "damaged"),
        (b'{"version":1,"entries":[],"checksum":1}', "damaged"),
        (b'{"version":"v1","entries":{},"checksum":1}', "damaged"),
        (b'{"version":"v1","entries":[],"checksum":1,"Data":null}', "damaged"),
        # The old form, but of a shape that no kubelet decodes.
        (b'{"version":"v1","entries":[[]],"checksum":1}', "damaged"),
        (b'{"version":"v1","entries":[{"CDIDevices":7}],"checksum":1}', "damaged"),
        (b'{"version":"v1","entries":[],"checksum":18446744073709551616}', "damaged"),
        (b'{"version":"v1","entries":[],"checksum":1.0}', "damaged"),
        # Go's limit, not Python's.
        (sealed(nested(9_000)), "valid"),
        (sealed(nested(10_000)), "valid"),
        (sealed(nested(10_001)), "damaged"),
        (nested(9_000).encode(), "valid"),
        (nested(10_001).encode(), "damaged"),
        (of_claims()[:-1] + b',"deep":' + nested(9_999).encode() + b"}", "valid"),
        (of_claims()[:-1] + b',"deep":' + nested(10_000).encode() + b"}", "damaged"),
        (of_claims({"ClaimUID": "../no/key"}), "valid"),
    ],
)
def test_both_have_one_verdict_where_they_had_two(blob: bytes, verdict: str) -> None:
    assert by_tool(blob) == agreed(blob) == verdict


def test_both_read_the_same_claims_from_the_old_form() -> None:
    blob = b'{"version":"v1","entries":[{"ClaimUID":"u","DriverName":"d","CdiDevices":["x"]}],"checksum":1}'

    found = inspect(blob, DRA)

    assert found is not None
    assert found.data["entries"][0]["ClaimUID"] == read_dra_manager_state(blob).claims[0].claim_uid == "u"


TOKENS = (b"{", b"}", b"[", b"]", b",", b":", b'"', b"\\", b"\\ud800", b"null", b"-0", b"1e9", b"\0", b"\xff", b"data")


@st.composite
def changed(draw: st.DrawFn, blob: bytes) -> bytes:
    """The bytes with up to three changes, small ones most of the time."""
    for _ in range(draw(st.integers(0, 3))):
        start, length = draw(st.integers(0, len(blob))), draw(st.sampled_from([0, 0, 1, 2, 40]))
        patch = draw(st.sampled_from(TOKENS) | st.binary(max_size=3) | st.just(blob[start : start + length] * 2))
        blob = blob[:start] + patch + blob[start + length :]
    return blob


TEXTS = [
    json.loads(vector.blob)["Data"].encode()
    for vector in VECTORS
    if vector.kind == DRA and vector.valid and b'"Data"' in vector.blob
]


@settings(max_examples=times(100, 5000), deadline=None)
@given(st.sampled_from([text for text in TEXTS if len(text) < 3_000]).flatmap(changed))
def test_both_agree_on_changed_text_under_a_right_checksum(text: bytes) -> None:
    agreed(sealed(text.decode(errors="replace")))


@settings(max_examples=times(100, 5000), deadline=None)
@given(TREES)
def test_both_agree_on_any_json_with_the_names_of_these_forms(tree: Any) -> None:
    text = spelled(tree)

    agreed(text.encode())
    agreed(sealed(text))
    agreed(sealed(f'{{"ClaimInfoStateList":[{text},{text}],"ClaimInfoStateList":[{text}]}}'))
    agreed(f'{{"version":"v1","entries":[{text}],"checksum":1,"entries":[{text}]}}'.encode())
    agreed(f'{{"version":"v1","checksum":1,"entries":[{{"ClaimUID":"u","CDIDevices":{text}}}]}}'.encode())
